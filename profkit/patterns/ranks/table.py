"""From the facts of one rank to the table that is compared with those of the others.

The located step, which recording makes several times as long, is left out but for its collectives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from profkit.core.marks import STEP_MARK
from profkit.derive.launch.table import Collectives, Group, RankTable, Steps, Work
from profkit.derive.timeline.intervals import union
from profkit.patterns.ranks.blocked import blocked_time
from profkit.patterns.ranks.crowding import set_crowding_apart
from profkit.patterns.ranks.exchanges import Exchanges, find_exchanges
from profkit.patterns.ranks.inputs import measure_inputs
from profkit.patterns.ranks.messages import message_group
from profkit.patterns.ranks.names import element_bytes, elements_of, operation_of
from profkit.patterns.ranks.sites import read_site, site_of
from profkit.patterns.ranks.working import Pieces, Spent, cut_pieces, spend
from profkit.run.directory import CallSite, RankIdentity
from profkit.trace.collectives import CollectiveArguments, read_arguments
from profkit.trace.events import NONE, Bools, Category, Int64s, Recording
from profkit.trace.statistics import distinct

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

_NO_COLLECTIVE = "no collective operation is recorded"
_MOST_SEQUENCE = 1 << 40
"""No group comes that far; a file may say anything."""
_LOOKING_BACK_NS = 1_000_000_000
"""How far the first exchange of a recording looks back."""
_LITTLE = 0.1
"""Gradients are cast, scaled or copied before they are sent; a micro-batch's forward pass takes half of its backward
pass."""
_NUMBER = re.compile(r"\d{1,9}")


def rank_table(facts: Facts, source: str) -> RankTable:
    """What is kept of one rank's recording, which the user knows as ``source``."""
    steps, base_ns = facts.steps, facts.trace.base_ns
    exchanges = find_exchanges(facts)
    chosen, numbers = steps.unmarked, _step_numbers(facts)
    pieces = cut_pieces(steps.begun_ns, steps.done_ns, chosen, union(*blocked_time(facts)))
    spent = set_crowding_apart(facts, pieces, spend(facts, pieces))
    called_at = np.where(exchanges.call >= 0, site_of(facts, exchanges.call), NONE)
    sites, (called_at, spent_at) = _compact(facts, called_at, spent.site)
    said = [read_arguments(facts.trace.text_of(code)) for code in exchanges.said.tolist()]
    groups, group = _groups(facts, exchanges, said)
    texts, collectives = _collectives(facts, said, groups, group, numbers, called_at)
    return RankTable(
        identity=facts.run.identity or _identity(facts),
        source=source,
        groups=groups,
        texts=texts,
        sites=sites,
        steps=Steps(numbers[chosen], steps.begun_ns[chosen] + base_ns, steps.done_ns[chosen] + base_ns),
        collectives=collectives,
        work=_work(pieces, spent, numbers, spent_at, base_ns),
        device=next((name for name in facts.trace.recording.devices if name), None),
        notes=(*facts.trace.health, *(() if len(exchanges) else (_NO_COLLECTIVE,))),
        is_cut_off=facts.trace.recording.is_cut_off,
        has_gaps=facts.trace.recording.has_gaps,
        inputs=measure_inputs(facts, chosen),
    )


def _collectives(
    facts: Facts,
    said: list[CollectiveArguments],
    groups: tuple[Group, ...],
    group: Int64s,
    numbers: Int64s,
    site: Int64s,
) -> tuple[tuple[str, ...], Collectives]:
    """The table's texts, and its collectives."""
    exchanges, waits, base_ns = find_exchanges(facts), blocked_time(facts), facts.trace.base_ns
    alone = np.array([*(one.is_message for one in groups), False])[group] & ~exchanges.on_device
    texts, operation, dtype, size_bytes = _describe(facts, exchanges, said)
    return texts, Collectives(
        step=_step_at(facts, numbers, exchanges.issue_ns),
        group=group,
        sequence=_sequence(group, np.array([min(one.sequence, _MOST_SEQUENCE) for one in said], dtype=np.int64)),
        operation=operation,
        size_bytes=size_bytes,
        dtype=dtype,
        issue_ns=exchanges.issue_ns + base_ns,
        start_ns=np.where(alone, exchanges.issue_ns, exchanges.start_ns) + base_ns,
        end_ns=exchanges.end_ns + base_ns,
        wait_start_ns=waits[0] + base_ns,
        wait_end_ns=waits[1] + base_ns,
        lane=_lanes(facts, exchanges, alone),
        on_compute=_on_compute(facts, exchanges),
        site=site,
        after_backward=_after_backward(facts, exchanges),
        on_device=exchanges.on_device,
    )


def _step_at(facts: Facts, numbers: Int64s, times_ns: Int64s) -> Int64s:
    """The number of the step in which the host was at each time, `NONE` outside all and in the located one."""
    steps = facts.steps
    index = steps.index_of(times_ns)
    inside = (index >= 0) & (~steps.located[index] | steps.located.all())
    return np.where(inside, numbers[index], NONE)


def _identity(facts: Facts) -> RankIdentity:
    recording = facts.trace.recording
    unknown = RankIdentity()
    rank = unknown.rank if recording.rank is None else recording.rank
    return RankIdentity(rank, recording.ranks or unknown.world_size, host=recording.host)


def _work(pieces: Pieces, spent: Spent, numbers: Int64s, site: Int64s, base_ns: int) -> Work:
    at = spent.piece
    return Work(
        numbers[pieces.step[at]],
        pieces.start_ns[at] + base_ns,
        pieces.end_ns[at] + base_ns,
        spent.cause,
        site,
        spent.time_ns,
    )


def _step_numbers(facts: Facts) -> Int64s:
    """The program's own numbers of the steps where a profiler gave them and they rise, else counted from 0."""
    trace, steps = facts.trace, facts.steps
    marks = trace.where_name(lambda name: name.startswith(STEP_MARK)) & (trace.events.category == Category.ANNOTATION)
    rows = np.flatnonzero(marks)
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    given = [trace.name_of(row).removeprefix(STEP_MARK) for row in rows.tolist()]
    counted = np.arange(len(steps))
    if len(rows) != len(steps) or not all(_NUMBER.fullmatch(number) for number in given):
        return counted
    numbers = np.array(given, dtype=np.int64)
    return numbers if (np.diff(numbers) > 0).all() else counted


def _compact(facts: Facts, *columns: Int64s) -> tuple[tuple[CallSite, ...], list[Int64s]]:
    """The lines that the columns name, and the columns as indices of these."""
    used = distinct(np.concatenate(columns))
    used = used[used >= 0]
    sites = tuple(read_site(facts, number) for number in used.tolist())
    return sites, [np.where(column >= 0, np.searchsorted(used, column), NONE) for column in columns]


def _groups(facts: Facts, exchanges: Exchanges, said: list[CollectiveArguments]) -> tuple[tuple[Group, ...], Int64s]:
    """The groups in the order of their first collectives. Where nothing is said of them, the collectives of one stream
    are taken for those of one group: each has streams of its own."""
    found: dict[tuple[object, ...], int] = {}
    groups: list[Group] = []
    group = []
    recording = facts.trace.recording
    lanes = facts.trace.events.lane[exchanges.row]
    for number, (known, lane, on_device) in enumerate(
        zip(said, lanes.tolist(), exchanges.on_device.tolist(), strict=True)
    ):
        one = message_group(facts, exchanges, number, known)
        key: tuple[object, ...] = (one,)
        if one is None and (known.operation or known.group):
            one = Group(known.group, known.size, known.members, known.description)
            key = (one,)
        elif one is None:
            one = Group("", recording.ranks or NONE, candidates=_groups_of(recording))
            key = ("", lane if on_device else NONE)
        if key not in found:
            found[key] = len(groups)
            groups.append(one)
        group.append(found[key])
    return tuple(groups), np.array(group, dtype=np.int64)


def _groups_of(recording: Recording) -> tuple[tuple[int, ...], ...]:
    """Those of several ranks that this one is in."""
    return tuple(ranks for ranks in recording.groups if len(ranks) > 1 and recording.rank in ranks)


def _lanes(facts: Facts, exchanges: Exchanges, alone: Bools) -> Int64s:
    """The stream or the thread of each. A message of gloo's is sent from within the call (its range begins afterwards),
    and none waits in that thread for the one before: each has a lane of its own."""
    lanes = facts.trace.events.lane[exchanges.row].astype(np.int64)
    lanes[alone] = lanes.max(initial=0) + 1 + np.arange(np.count_nonzero(alone))
    return lanes


def _describe(
    facts: Facts, exchanges: Exchanges, said: list[CollectiveArguments]
) -> tuple[tuple[str, ...], Int64s, Int64s, Int64s]:
    """The table's texts, and for each collective its operation, type and size. What a call of the located step moves,
    those that repeat it do too, also where another of the backend's threads, which says nothing, ran theirs."""
    codes: dict[str, int] = {}
    types: dict[int, str] = {}
    repeated = np.where(facts.repeats.exact, facts.repeats.row, NONE)
    rows: list[tuple[int, int, int]] = []
    described = zip(said, exchanges.row.tolist(), exchanges.call.tolist(), exchanges.shapes.tolist(), strict=True)
    for one, row, call, shapes in described:
        names = (one.operation, *(facts.trace.name_of(each) for each in (call, shapes, row) if each >= 0))
        operation = next(filter(None, map(operation_of, names)), "")
        dtype, elements = one.dtype, one.elements if one.elements >= 0 else None
        if elements is None and shapes >= 0:
            elements, dtype = _by_shapes(facts, operation, shapes, row, shapes == call)
        dtype = dtype or (types.get(int(repeated[call]), "") if call >= 0 else "")
        types[call] = dtype
        width = element_bytes(dtype)
        size = NONE if elements is None or width is None else min(elements * width, 2**62)
        size = 0 if operation == "barrier" else size
        rows.append((codes.setdefault(operation, len(codes)), codes.setdefault(dtype, len(codes)), size))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return tuple(codes), table[:, 0], table[:, 1], table[:, 2]


def _by_shapes(facts: Facts, operation: str, shapes: int, row: int, is_call: bool) -> tuple[int | None, str]:
    """The number of elements and their type, by the recorded inputs of an event. Of a list of tensors a call does not
    name the type; the range of the thread does."""
    trace, events = facts.trace, facts.trace.events
    dims = elements_of(trace.text_of(int(events.dims_code[shapes])), operation, is_call)
    types = [
        name for each in (shapes, row) for name in re.findall(r'"([^"]+)"', trace.text_of(int(events.types_code[each])))
    ]
    return dims, next((one for one in types if element_bytes(one)), "")


def _sequence(group: Int64s, given: Int64s) -> Int64s:
    """The trace's own numbers, or, of a group in which not all have one, counted from its first collective."""
    counted = np.zeros(len(group), dtype=np.int64)
    for one in distinct(group).tolist():
        mine = np.flatnonzero(group == one)
        counted[mine] = given[mine] if (given[mine] >= 0).all() else np.arange(len(mine))
    return counted


def _on_compute(facts: Facts, exchanges: Exchanges) -> Bools:
    """Which ran in the stream that computes for longest."""
    events, device = facts.trace.events, facts.device
    kernels = device.work[~device.collective]
    kernels = kernels[events.category[kernels] == Category.KERNEL]
    if not kernels.size:
        return np.zeros(len(exchanges), dtype=bool)
    main = np.bincount(events.lane[kernels], events.duration_ns[kernels]).argmax()
    there: Bools = exchanges.on_device & (events.lane[exchanges.row] == main)
    return there


def _after_backward(facts: Facts, exchanges: Exchanges) -> Bools:
    """Which were asked for right after work of the backward pass: since the exchange before there was some, and little
    else after it. Where there was hardly any work, as between two tensors of one micro-batch, it is as before."""
    events, backward = facts.trace.events, facts.lines.backward
    operators = (events.category == Category.OPERATOR) & facts.serial_lanes[events.lane]
    operators &= ~facts.trace.where_name(lambda name: name.startswith("c10d::"))
    nodes, others = (np.flatnonzero(facts.tree.outermost(wanted)) for wanted in (backward, operators & ~backward))
    back, forth = (union(events.start_ns[rows], facts.tree.end_ns[rows]) for rows in (nodes, others))
    if not len(back.end_ns) or not len(exchanges):
        return np.zeros(len(exchanges), dtype=bool)
    issue_ns = exchanges.issue_ns
    since_ns = np.concatenate([issue_ns[:1] - _LOOKING_BACK_NS, issue_ns[:-1]])  # they are in this order
    last_ns = np.append(np.iinfo(np.int64).min, back.end_ns)[np.searchsorted(back.end_ns, issue_ns, side="right")]
    back_ns, forth_ns = (which.covered_within(since_ns, issue_ns) for which in (back, forth))
    forth_since_ns = forth.covered_within(np.maximum(last_ns, since_ns).clip(max=issue_ns), issue_ns)
    works = (back_ns > 0) | (forth_ns > _LITTLE * (back_ns + forth_ns).mean())
    works[0] = True
    latest = np.maximum.accumulate(np.where(works, np.arange(len(works)), 0))
    return ((back_ns > 0) & (forth_since_ns <= _LITTLE * back_ns))[latest]
