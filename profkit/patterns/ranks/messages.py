"""Messages from one rank to another: which two ranks they are a matter of, as far as the recording says.

Kernels of NCCL name the other rank (``Src Rank``, ``Dst Rank``), and the ranges around them do by its number in the
group (``nccl:send 0->1``). A call of c10d has that number among its recorded values, as ``c10d::send(tensors, group,
dst, tag)``. Which group it is the call does not say, so it may be any that this rank is in.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from profkit.derive.launch.table import Group
from profkit.patterns.ranks.exchanges import Exchanges
from profkit.patterns.ranks.names import SEND_RECEIVE, operation_of
from profkit.trace.collectives import CollectiveArguments
from profkit.trace.events import NONE

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

_DIRECTION = re.compile(r"(?:^|[:_])(send|recv)(?![a-z])", re.IGNORECASE)
"""Not the name of NCCL's kernel, ``SendRecv``, which is the same for both."""
_ENDS = re.compile(r"(\d{1,6})(?:->|<-)(\d{1,6})")
_ANY_SOURCE = "any_source"
"""Such a call takes what comes first, and does not say from whom."""
_PEER_VALUE = 2
"""The place of the other rank among the values of a call."""


def message_group(facts: Facts, exchanges: Exchanges, number: int, reported: CollectiveArguments) -> Group | None:
    """The group of two that a message belongs to; None for other collectives."""
    names = _names(facts, exchanges, number, reported)
    direction = next((found[1].lower() for name in names if (found := _DIRECTION.search(name))), "")
    operation = next(filter(None, map(operation_of, names)), "")
    if not direction or operation != SEND_RECEIVE:
        return None
    sends = direction == "send"
    rank = facts.trace.recording.rank
    if rank is None:
        rank = facts.run.identity.rank if facts.run.identity is not None else NONE
    peers = _peers(facts, exchanges, number, reported, names, rank) if rank >= 0 else ()
    pairs = tuple(dict.fromkeys((rank, peer) if sends else (peer, rank) for peer in peers if peer != rank))
    if len(pairs) == 1:
        source, target = pairs[0]
        prefix = f"{reported.group}: " if reported.group else ""
        return Group(f"{prefix}{source} to {target}", 2, pairs[0], sends=sends)
    return Group(reported.group, 2, sends=sends, candidates=pairs)


def _names(facts: Facts, exchanges: Exchanges, number: int, reported: CollectiveArguments) -> list[str]:
    rows = (int(column[number]) for column in (exchanges.shapes, exchanges.call, exchanges.row))
    return [*filter(None, [reported.operation]), *(facts.trace.name_of(row) for row in rows if row >= 0)]


def _peers(
    facts: Facts, exchanges: Exchanges, number: int, reported: CollectiveArguments, names: list[str], rank: int
) -> tuple[int, ...]:
    """The ranks that the other one may be, by their numbers in the launch; none where nothing is known."""
    recording = facts.trace.recording
    said = [one for one in (reported.source, reported.target) if one >= 0]
    if said:
        return tuple(said)
    if recording.ranks == 2:
        return (1 - rank,)
    groups = [ranks for ranks in recording.groups if rank in ranks and len(ranks) > 1]
    ends = next((found for name in names if (found := _ENDS.search(name))), None)
    if ends is not None:
        own, peer = int(ends[1]), int(ends[2])
        if not groups:  # the group is one of all ranks up to this one, as groups are in order of rank
            return (peer,) if own == rank else ()
        return tuple(group[peer] for group in groups if group.index(rank) == own and peer < len(group))
    call = -1 if any(_ANY_SOURCE in name for name in names) else int(exchanges.call[number])
    code = int(facts.trace.events.concrete_code[call]) if call >= 0 else NONE
    value = _peer_in(facts.trace.text_of(code)) if code >= 0 else None
    return () if value is None else tuple(group[value] for group in groups if value < len(group))


@lru_cache(maxsize=4096)
def _peer_in(concrete: str) -> int | None:
    try:
        values = json.loads(concrete)
    except ValueError:
        return None
    known = isinstance(values, list) and len(values) > _PEER_VALUE and isinstance(values[_PEER_VALUE], str)
    return int(values[_PEER_VALUE]) if known and re.fullmatch(r"\d{1,6}", values[_PEER_VALUE]) else None
