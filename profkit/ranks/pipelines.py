"""Pipelines: ranks that pass micro-batches on to each other, each working on what the one before has sent.

What tells them is their messages. They join the ranks to a chain; every link carries as many of them in a step, or a
multiple of that where several tensors are sent; and no stage sends a micro-batch on before it has received that very
one and worked on it. Neighbours that exchange the borders of their grids form a chain too, but send theirs without
having received the others', or work after the exchange and not between its halves.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from msgspec import Struct

from profkit.ranks.clocks import is_message, message_parts, taken
from profkit.ranks.launch import Launch
from profkit.trace.events import Bools, Int64s

_WORKED_BETWEEN = 0.5
"""A stage does most of its work between receiving a micro-batch and sending it on; who only passes on messages, or
exchanges them before its own work, does hardly any there."""
_MIXED = 0.15
"""With two chunks on each of two ranks a third of a link's messages goes the other way."""
_LEAST_BETWEEN = 0.2
"""Of the work for one message: a rank that passes on what it worked on does at least that in between."""


class Pipeline(Struct, frozen=True):
    """``stages`` are indices of the launch's tables, the first stage first. In a step so many ``micro_batches`` go
    through it; in training, where ``returns``, their gradients come back. ``joint`` are its messages."""

    stages: tuple[int, ...]
    micro_batches: int
    returns: bool
    joint: Int64s


class _Link(Struct, frozen=True):
    """The messages of one direction between two ranks, in the steps that count: by message, in order, the step, when it
    was sent on the sender's clock and when it had arrived on the receiver's, and whether it was sent after work of a
    backward pass."""

    step: Int64s
    sent_ns: Int64s
    arrived_ns: Int64s
    joint: Int64s
    after_backward: Bools

    @property
    def is_mixed(self) -> bool:
        """Whether some of them bring activations and others gradients."""
        share = float(self.after_backward.mean())
        return min(share, 1 - share) >= _MIXED

    @property
    def per_step(self) -> int:
        """How many there are in each step, 0 if that varies."""
        _, counts = np.unique(self.step, return_counts=True)
        return int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0


_Links = dict[tuple[int, int], _Link]


def find_pipelines(launch: Launch) -> tuple[Pipeline, ...]:
    """Those whose stages were all recorded."""
    if not is_message(launch).any():
        return ()
    links = _links(launch)
    partners = _partners(launch)
    found = (_as_pipeline(launch, links, chain) for chain in _chains(partners) if min(chain) >= 0)
    return tuple(one for one in found if one is not None)


def is_in_doubt(launch: Launch) -> list[bool]:
    """By table: whether the rank has messages of which the other rank is not known, so that nobody can tell whether it
    is a stage of a pipeline."""
    return [any(group.is_message and group.ranks is None for group in table.groups) for table in launch.tables]


def _links(launch: Launch) -> _Links:
    parts = launch.parts
    source, target = message_parts(launch)
    start_ns, end_ns, waited_ns = (taken(launch, name) for name in ("start_ns", "end_ns", "wait_end_ns"))
    after_backward = taken(launch, "after_backward").astype(bool)
    stood = waited_ns > taken(launch, "wait_start_ns")
    arrived_ns = np.where(stood, np.minimum(waited_ns, end_ns), end_ns)
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
        found[pair] = _Link(step[mine], start_ns[source[mine]], arrived_ns[target[mine]], joint[mine],
                            after_backward[source[mine]])  # fmt: skip
    return found


def _partners(launch: Launch) -> dict[int, set[int]]:
    """By table those of the ranks that it shares messages with; -1 for a rank that was not recorded."""
    number = {table.identity.rank: at for at, table in enumerate(launch.tables)}
    found: dict[int, set[int]] = {}
    for at, table in enumerate(launch.tables):
        for group in table.groups:
            if group.is_message and group.ranks is not None:
                others = {number.get(rank, -1) for rank in group.ranks if rank != table.identity.rank}
                found.setdefault(at, set()).update(others)
    return found


def _chains(partners: dict[int, set[int]]) -> list[list[int]]:
    """The ranks that messages join to a chain, from one end to the other."""
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
        returns = all(link is not None for link in back)
        used = [link for link in (*forward, *(back if returns else ())) if link is not None]
        count = min((link.per_step for link in used), default=0)
        is_whole = all(link is not None for link in forward) and (returns or not any(back))
        is_even = is_whole and count and not any(link.per_step % count or link.is_mixed for link in used)
        is_even = is_even and _has_equal_steps(used)
        if is_even and all(_passes_on(launch, links, stages, place, count, returns)
                           for place in range(1, len(stages))):  # fmt: skip
            return Pipeline(tuple(stages), count, returns, np.concatenate([link.joint for link in used]))
    return None


def _has_equal_steps(links: list[_Link]) -> bool:
    return all(np.array_equal(np.unique(link.step), np.unique(links[0].step)) for link in links)


def _passes_on(
    launch: Launch, links: _Links, stages: list[int], place: int, count: int, returns: bool
) -> bool:
    """Whether this stage sends each micro-batch on after it has received it, forwards and, if gradients come back,
    backwards, and does most of its work in between. The last stage sends back what it received."""
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


class Relay(Struct, frozen=True):
    """Ranks, by their tables, that work on what others send them and pass it on, as in a pipeline, but not in one of
    the simple form: with several chunks on each rank (`ScheduleInterleaved1F1B`, `ScheduleZBVZeroBubble`), or with
    another number of micro-batches in each step. They wait for each other though none is slow. ``joint`` are the
    messages."""

    ranks: tuple[int, ...]
    joint: Int64s


def find_relays(launch: Launch) -> tuple[Relay, ...]:
    """Chains and rings of ranks that are no `Pipeline`, where half of the ranks or more work on what they receive
    before they send anything. In a ring of attention, and where borders are exchanged, ranks send what they have."""
    if not is_message(launch).any():
        return ()
    staged = {at for pipeline in find_pipelines(launch) for at in pipeline.stages}
    links, partners = _links(launch), _partners(launch)
    found = []
    for ranks in _joined(partners):
        own = {pair: link for pair, link in links.items() if set(pair) <= set(ranks)}
        is_line = min(ranks) >= 0 and all(len(partners.get(at, ())) <= 2 for at in ranks)
        if is_line and own and not staged & set(ranks) and _most_receive_first(launch, own, ranks):
            found.append(Relay(tuple(ranks), np.concatenate([link.joint for link in own.values()])))
    return tuple(found)


def _joined(partners: dict[int, set[int]]) -> list[list[int]]:
    """The ranks that messages join, in order."""
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
    """Whether in most steps half of the ranks, or more, have received a message and worked on it before they send."""
    first_sent, first_arrived, sent = _first_in_step(links)
    steps = {step for _, step in first_sent}
    apiece_ns = {at: int(launch.tables[at].work.time_ns.sum()) / max(sent[at], 1) for at in ranks}

    def receives_first(at: int, step: int) -> bool:
        key = at, step
        return key in first_arrived and key in first_sent and (
            first_sent[key] - first_arrived[key] >= max(1, _LEAST_BETWEEN * apiece_ns[at]))  # fmt: skip

    passing = sum(2 * sum(receives_first(at, step) for at in ranks) >= len(ranks) for step in steps)
    return 2 * passing > len(steps)


def _first_in_step(links: _Links) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int], Counter[int]]:
    """By rank and step when it first sends and first has something, on its own clock; and how many it sends in all."""
    sent: Counter[int] = Counter()
    first_sent, first_arrived = (dict[tuple[int, int], int]() for _ in range(2))
    for (source, target), link in links.items():
        sent[source] += len(link.step)
        steps, begins = np.unique(link.step, return_index=True)  # messages are in order
        for first, at, times_ns in ((first_sent, source, link.sent_ns), (first_arrived, target, link.arrived_ns)):
            for step, time_ns in zip(steps.tolist(), np.minimum.reduceat(times_ns, begins).tolist(), strict=True):
                first[at, step] = min(time_ns, first.get((at, step), time_ns))
    return first_sent, first_arrived, sent


def stage_kinds(launch: Launch) -> list[tuple[int, ...]]:
    """By table what tells its work from that of others: its place in the pipeline. Stages of one pipeline have
    different work to do, and so have the ranks of a relay; who may be in one is compared with nobody."""
    found: list[tuple[int, ...]] = [(at,) if doubt else () for at, doubt in enumerate(is_in_doubt(launch))]
    for ranks in (*(one.stages for one in find_pipelines(launch)), *(one.ranks for one in find_relays(launch))):
        for place, at in enumerate(ranks):
            found[at] = (place, len(ranks))
    return found
