"""Pipelines: ranks that pass micro-batches on, each working on what the one before has sent.

They are recognised by their messages. Messages join the ranks into a chain. Every link carries the same number per
step, or a multiple of it if several tensors are sent. And a stage sends a micro-batch on only after it has received it
and worked on it. Neighbours that exchange the borders of their grids form a chain too, but they send before they have
received, or work after the exchange instead of between its halves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from profkit.derive.launch.clocks import is_message, message_parts, part_column
from profkit.derive.launch.launch import Launch
from profkit.trace.events import Bools, Int64s

_WORKED_BETWEEN = 0.5
"""A stage does most of its work between receiving a micro-batch and sending it on. A rank that only forwards messages,
or exchanges them before its own work, does hardly any there."""
_MIXED = 0.15
"""With two chunks on each of two ranks, a third of a link's messages belongs to the other pass."""
_LEAST_BETWEEN = 0.2
"""Of the work per message: a rank that passes on what it worked on does at least this much in between."""


class Pipeline(Struct, frozen=True):
    """``stages`` are indices of the launch's tables, the first stage first. ``micro_batches`` go through it in a step.
    In training their gradients come back (``returns``). ``joint`` are its messages."""

    stages: tuple[int, ...]
    micro_batches: int
    returns: bool
    joint: Int64s


class Relay(Struct, frozen=True):
    """Ranks, as indices of the launch's tables, that work on what others send them and pass it on, but do not form a
    simple pipeline: they hold several chunks each (`ScheduleInterleaved1F1B`, `ScheduleZBVZeroBubble`), or the number
    of micro-batches varies. They wait for each other even if none is slow. ``joint`` are the messages."""

    ranks: tuple[int, ...]
    joint: Int64s


class Staging(Struct, frozen=True):
    """How messages divide a launch into stages. Only pipelines whose stages were all recorded are in it."""

    pipelines: tuple[Pipeline, ...] = ()
    relays: tuple[Relay, ...] = ()


class _Link(Struct, frozen=True):
    """The messages from one rank to another within steps, in order: the step, when each was sent on the sender's clock,
    when it had arrived on the receiver's, and whether the sender's last work was of a backward pass."""

    step: Int64s
    sent_ns: Int64s
    arrived_ns: Int64s
    joint: Int64s
    after_backward: Bools

    @property
    def is_mixed(self) -> bool:
        """Whether some carry activations and others gradients."""
        share = float(self.after_backward.mean())
        return min(share, 1 - share) >= _MIXED

    @property
    def per_step(self) -> int:
        """Their number in each step, 0 if it varies."""
        _, counts = np.unique(self.step, return_counts=True)
        return int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0


_Links = dict[tuple[int, int], _Link]


def find_staging(launch: Launch) -> Staging:
    """The pipelines and relays of a launch."""
    if not is_message(launch).any():
        return Staging()
    links, partners = _links(launch), _partners(launch)
    found = (_as_pipeline(launch, links, chain) for chain in _chains(partners) if min(chain) >= 0)
    pipelines = tuple(one for one in found if one is not None)
    return Staging(pipelines, tuple(_relays(launch, links, partners, pipelines)))


def is_in_doubt(launch: Launch) -> list[bool]:
    """By table: whether the other rank of some of its messages is unknown, so that it may be a stage of a pipeline."""
    return [any(group.is_message and group.ranks is None for group in table.groups) for table in launch.tables]


def _links(launch: Launch) -> _Links:
    parts = launch.parts
    source, target = message_parts(launch)
    start_ns, arrived_ns = part_column(launch, "start_ns"), part_column(launch, "arrived_ns")
    after_backward = part_column(launch, "after_backward").astype(bool)
    joint = parts.joint[source]
    step = launch.joint.step[joint]
    inside = step >= 0
    sender, receiver = parts.table[source], parts.table[target]
    order = np.lexsort((start_ns[source], receiver, sender))
    order = order[inside[order]]
    bounds = np.flatnonzero(np.diff(sender[order] * len(launch.tables) + receiver[order], prepend=-1, append=-1))
    found: _Links = {}
    for first, last in pairwise(bounds.tolist()):
        mine = order[first:last]
        pair = int(sender[mine[0]]), int(receiver[mine[0]])
        found[pair] = _Link(
            step[mine], start_ns[source[mine]], arrived_ns[target[mine]], joint[mine], after_backward[source[mine]]
        )
    return found


def _partners(launch: Launch) -> dict[int, set[int]]:
    """For each table, the tables that it shares messages with; -1 stands for a rank that was not recorded."""
    number = {table.identity.rank: at for at, table in enumerate(launch.tables)}
    found: dict[int, set[int]] = {}
    for at, table in enumerate(launch.tables):
        for group in table.groups:
            if group.is_message and group.ranks is not None:
                others = {number.get(rank, -1) for rank in group.ranks if rank != table.identity.rank}
                found.setdefault(at, set()).update(others)
    return found


def _chains(partners: dict[int, set[int]]) -> list[list[int]]:
    """The chains that messages join ranks into, each from one end to the other."""
    found, seen = [], set[int]()
    for first in (at for at, others in partners.items() if len(others) == 1):
        chain, at = [first], first
        while following := [other for other in sorted(partners.get(at, ())) if other not in chain]:
            chain, at = [*chain, following[0]], following[0]
        ends = all(len(partners.get(one, ())) == (1 if one in (chain[0], chain[-1]) else 2) for one in chain)
        if ends and not seen & set(chain) and len(chain) > 1:
            found.append(chain)
            seen |= set(chain)
    return found


def _as_pipeline(launch: Launch, links: _Links, chain: list[int]) -> Pipeline | None:
    for stages in (chain, chain[::-1]):
        forward = [links.get((one, other)) for one, other in pairwise(stages)]
        back = [links.get((other, one)) for one, other in pairwise(stages)]
        returns = all(back)
        if not all(forward) or (any(back) and not returns):
            continue
        used = [link for link in (*forward, *back) if link is not None]
        count = min(link.per_step for link in used)
        is_even = count and not any(link.per_step % count or link.is_mixed for link in used)
        is_even = is_even and all(np.array_equal(np.unique(link.step), np.unique(used[0].step)) for link in used)
        if is_even and all(_passes_on(launch, links, stages, place, count, returns) for place in range(1, len(stages))):
            return Pipeline(tuple(stages), count, returns, np.concatenate([link.joint for link in used]))
    return None


def _passes_on(launch: Launch, links: _Links, stages: list[int], place: int, count: int, returns: bool) -> bool:
    """Whether this stage sends each micro-batch on only after receiving it, in the forward pass and, if gradients come
    back, in the backward pass, and does most of its work in between. The last stage sends gradients back."""
    before, own = stages[place - 1], stages[place]
    is_last = place == len(stages) - 1
    ways = []
    if not is_last:
        ways.append((links[before, own], links[own, stages[place + 1]]))
        if returns:
            ways.append((links[stages[place + 1], own], links[own, before]))
    elif returns:
        ways.append((links[before, own], links[own, before]))
    between_ns = 0
    for incoming, outgoing in ways:
        arrived_ns = incoming.arrived_ns.reshape(-1, incoming.per_step // count).max(axis=1)
        sent_ns = outgoing.sent_ns.reshape(-1, outgoing.per_step // count).min(axis=1)
        if (sent_ns < arrived_ns).any():
            return False
        between_ns += int((sent_ns - arrived_ns).sum())
    work = launch.tables[own].work
    worked_ns = work.time_ns[np.isin(work.step, links[before, own].step)].sum()
    return not ways or between_ns >= _WORKED_BETWEEN * worked_ns


def _relays(
    launch: Launch, links: _Links, partners: dict[int, set[int]], pipelines: tuple[Pipeline, ...]
) -> Iterator[Relay]:
    """Chains and rings outside the pipelines in which at least half of the ranks work on what they receive before they
    send anything. In ring attention and border exchange, ranks send what they have."""
    staged = {at for pipeline in pipelines for at in pipeline.stages}
    for ranks in _joined(partners):
        own = {pair: link for pair, link in links.items() if set(pair) <= set(ranks)}
        is_line = min(ranks) >= 0 and all(len(partners.get(at, ())) <= 2 for at in ranks)
        if is_line and own and not staged & set(ranks) and _most_receive_first(launch, own, ranks):
            yield Relay(tuple(ranks), np.concatenate([link.joint for link in own.values()]))


def _joined(partners: dict[int, set[int]]) -> list[list[int]]:
    """The sets of ranks that messages join, each in order."""
    found, seen = [], set[int]()
    for first in sorted(partners):
        ranks, new = set[int](), {first} - seen
        while new:
            ranks |= new
            new = set().union(*(partners.get(at, ()) for at in new)) - ranks
        if len(ranks) > 1:
            found.append(sorted(ranks))
        seen |= ranks
    return found


def _most_receive_first(launch: Launch, links: _Links, ranks: list[int]) -> bool:
    """Whether in most steps at least half of the ranks receive a message and work on it before they send."""
    first_sent, first_arrived, sent = _first_in_step(links)
    steps = {step for _, step in first_sent}
    apiece_ns = {at: int(launch.tables[at].work.time_ns.sum()) / max(sent[at], 1) for at in ranks}

    def receives_first(at: int, step: int) -> bool:
        key = at, step
        return (
            key in first_arrived
            and key in first_sent
            and (first_sent[key] - first_arrived[key] >= max(1, _LEAST_BETWEEN * apiece_ns[at]))
        )

    passing = sum(2 * sum(receives_first(at, step) for at in ranks) >= len(ranks) for step in steps)
    return 2 * passing > len(steps)


def _first_in_step(links: _Links) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int], Counter[int]]:
    """By rank and step, when it first sends and first receives, on its own clock; by rank, how many it sends in all."""
    sent: Counter[int] = Counter()
    first_sent, first_arrived = (dict[tuple[int, int], int]() for _ in range(2))
    for (source, target), link in links.items():
        sent[source] += len(link.step)
        steps, begins = np.unique(link.step, return_index=True)  # they are in order
        for first, at, times_ns in ((first_sent, source, link.sent_ns), (first_arrived, target, link.arrived_ns)):
            for step, time_ns in zip(steps.tolist(), np.minimum.reduceat(times_ns, begins).tolist(), strict=True):
                first[at, step] = min(time_ns, first.get((at, step), time_ns))
    return first_sent, first_arrived, sent


def stage_kinds(launch: Launch, staging: Staging) -> list[tuple[int, ...]]:
    """For each table, what sets its work apart from other ranks': its place in a pipeline or relay. A rank that may be
    in one is compared with nobody."""
    found: list[tuple[int, ...]] = [(at,) if doubt else () for at, doubt in enumerate(is_in_doubt(launch))]
    for ranks in (*(one.stages for one in staging.pipelines), *(one.ranks for one in staging.relays)):
        for place, at in enumerate(ranks):
            found[at] = (place, len(ranks))
    return found
