"""The account of a saving: what its edit takes out of a step, piece by piece, and what the replay makes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.transfers import transfer_times
from profkit.derive.timeline.intervals import union
from profkit.findings.accounts import Account, TakenFrom, TakenOut
from profkit.patterns.kernel_names import short_kernel_name
from profkit.patterns.program import length_ns, spent_ns
from profkit.savings.edits import Edit
from profkit.savings.launch.launch_savings import launch_of, replay_of_launch
from profkit.savings.replay import replay
from profkit.trace.events import Bools, Int64s, Rows
from profkit.trace.statistics import distinct, relative_deviation

MOST_NAMES = 8
"""More than a reader follows. The rest is small, as the largest come first."""
_LONGEST_NAME = 200
"""Characters. Ranges of a program may have any name."""


class _Pieces(Struct, frozen=True):
    """Pieces of one side, each once: a name's number (-1 for none), how long each took, and what stays of it."""

    origin: TakenFrom
    name: Int64s
    took_ns: Int64s
    kept_ns: Int64s


class _PerStep(Struct, frozen=True):
    """The number of steps, and what a sum over them is in one of them."""

    steps: int
    ns: Callable[[float], int]


def account_of(facts: Facts, edit: Edit, part: float = 1.0) -> Account:
    """The account of an edit of this rank's steps. ``part`` is the finding's part of what the edit gives back."""
    pieces = (_events(facts, edit), _stretches(facts, edit), _work(facts, edit), _waits(facts, edit))
    steps, replayed = facts.steps, replay(facts, edit)
    per_step = _PerStep(max(steps.measured_count, 1), steps.per_step_ns)
    return _account(
        [one for of_side in pieces for one in _by_name(of_side, facts.trace.names, per_step)],
        (steps.per_step_ns(replayed.recorded_ns), steps.per_step_ns(replayed.edited_ns)),
        part,
        edit.uncertainty,
        relative_deviation(facts.steps.duration_ns[facts.steps.measured]),
    )


def account_of_launch(facts: Facts, edit: JointEdit) -> Account:
    """The account of an edit of all ranks: their own work and their collectives, over all ranks together."""
    launch = launch_of(facts)
    before, after = replay_of_launch(facts), replay_of_launch(facts, edit)
    per_step = _PerStep(before.steps, lambda total_ns: int(total_ns / before.steps))
    durations = np.concatenate([np.zeros(0), *(table.steps.duration_ns for table in launch.tables)])
    return _account(
        [*_of_ranks(launch, edit, per_step), *_of_collectives(launch, edit, per_step)],
        (before.replayed_ns // before.steps, after.replayed_ns // before.steps),
        1.0,
        edit.uncertainty,
        relative_deviation(durations) if len(durations) else 0.0,
    )


def _account(
    taken: list[TakenOut], step_ns: tuple[int, int], part: float, uncertainty: float, spread: float
) -> Account:
    ordered = sorted(taken, key=lambda piece: (piece.kept_ns - piece.took_ns, piece.name))
    return Account(
        taken=tuple(ordered[:MOST_NAMES]),
        more=len(ordered[MOST_NAMES:]),
        more_ns=sum(piece.took_ns - piece.kept_ns for piece in ordered[MOST_NAMES:]),
        step_ns=step_ns[0],
        edited_ns=step_ns[1],
        part=round(part, 6),
        uncertainty=round(uncertainty, 4),
        spread=round(spread, 4),
    )


def _by_name(pieces: _Pieces, names: Sequence[str], per_step: _PerStep) -> Iterator[TakenOut]:
    """The pieces by name; kernels that differ only in their types have one name."""
    shorter = pieces.kept_ns < pieces.took_ns
    codes, code = np.unique(pieces.name[shorter], return_inverse=True)
    known = [_name_of(names[code] if code >= 0 else "", pieces.origin) for code in codes.tolist()]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(known))}
    group = np.array([number_of[name] for name in known], dtype=np.int64)[code]
    count = np.bincount(group, minlength=len(number_of)) / per_step.steps
    took = np.bincount(group, pieces.took_ns[shorter], len(number_of))
    kept = np.bincount(group, pieces.kept_ns[shorter].clip(min=0), len(number_of))
    for name, at in number_of.items():
        yield TakenOut(name, pieces.origin, round(float(count[at]), 2), per_step.ns(took[at]), per_step.ns(kept[at]))


def _name_of(name: str, origin: TakenFrom) -> str:
    short = short_kernel_name(name) if origin is TakenFrom.DEVICE else name
    return short if len(short) <= _LONGEST_NAME else f"{short[:_LONGEST_NAME]}…"


def _shortest(rows: Rows, kept_ns: Int64s) -> tuple[Rows, Int64s]:
    """Each row once, with the least that any part of the edit leaves of it."""
    once, at = np.unique(rows, return_inverse=True)
    kept = np.full(len(once), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(kept, at, kept_ns)
    return once, kept


def _in_spans(edit: Edit, starts_ns: Int64s) -> Bools:
    """Which of these moments lie in a stretch that the edit takes out as a whole."""
    spans = union(edit.span_start_ns, edit.span_end_ns)
    inside: Bools = spans.covered_within(starts_ns, starts_ns + 1) > 0
    return inside


def _events(facts: Facts, edit: Edit) -> _Pieces:
    """The outermost events of the host: what lies inside one goes with it."""
    rows, kept = _shortest(edit.rows, edit.kept_ns)
    events = facts.trace.events
    counts = facts.measured[rows] & facts.serial_lanes[events.lane[rows]]
    counts &= facts.tree.nearest_ancestor(facts.trace.mask_of(rows), of=rows) < 0
    counts &= ~_in_spans(edit, events.start_ns[rows])
    rows, kept = rows[counts], kept[counts]
    return _Pieces(TakenFrom.HOST, events.name_code[rows].astype(np.int64), spent_ns(facts, rows), kept)


def _stretches(facts: Facts, edit: Edit) -> _Pieces:
    measured = facts.steps.in_measured(edit.span_start_ns)
    start, end = edit.span_start_ns[measured], edit.span_end_ns[measured]
    by_start = np.lexsort((-end, start))  # of those that begin together the longest first
    start, end, kept = start[by_start], end[by_start], edit.span_kept_ns[measured][by_start]
    outside = np.ones(len(start), dtype=bool)
    outside[1:] = end[1:] > np.maximum.accumulate(end)[:-1]
    start, end, kept = start[outside], end[outside], kept[outside]
    return _Pieces(TakenFrom.STRETCH, np.full(len(start), -1), length_ns(facts, start, end), kept)


def _work(facts: Facts, edit: Edit) -> _Pieces:
    work, kept = _shortest(edit.work, edit.work_kept_ns)
    launches, events = facts.launches, facts.trace.events
    launched = np.zeros(len(events), dtype=bool)
    launched[launches.work[facts.steps.in_measured(launches.launched_ns)]] = True
    work, kept = work[launched[work]], kept[launched[work]]
    return _Pieces(TakenFrom.DEVICE, events.name_code[work].astype(np.int64), events.duration_ns[work], kept)


def _waits(facts: Facts, edit: Edit) -> _Pieces:
    """Without the device's side of the recording no wait is taken out: nothing shows what it hid."""
    rows = distinct(edit.waits)
    rows = rows[facts.measured[rows] & facts.device.present]
    names = facts.trace.events.name_code[rows].astype(np.int64)
    return _Pieces(TakenFrom.WAIT, names, spent_ns(facts, rows), np.zeros(len(rows), dtype=np.int64))


def _of_ranks(launch: Launch, edit: JointEdit, per_step: _PerStep) -> Iterator[TakenOut]:
    """The ranks' own work that takes another time, by rank."""
    for number in distinct(edit.table).tolist():
        table, mine = launch.tables[number], edit.table == number
        row, kept_ns = _shortest(edit.row[mine], edit.kept_ns[mine])
        names = np.zeros(len(row), dtype=np.int64)
        pieces = _Pieces(TakenFrom.RANK, names, table.work.time_ns[row], kept_ns)
        yield from _by_name(pieces, [f"rank {table.identity.rank}"], per_step)


def _of_collectives(launch: Launch, edit: JointEdit, per_step: _PerStep) -> Iterator[TakenOut]:
    """The collectives that take less time, are gone or come earlier, by operation."""
    took_ns = transfer_times(launch)
    kept_ns = np.concatenate([edit.transfer_ns, np.zeros_like(edit.gone)])
    joint, kept_ns = _shortest(np.concatenate([edit.joint, edit.gone]), kept_ns)
    pieces = _Pieces(TakenFrom.TRANSFER, launch.joint.operation[joint], took_ns[joint], kept_ns)
    yield from _by_name(pieces, launch.texts, per_step)
    early, later_ns = _shortest(edit.early, -edit.early_ns)
    asked = _Pieces(TakenFrom.EARLIER, launch.joint.operation[early], -later_ns, np.zeros_like(later_ns))
    yield from _by_name(asked, launch.texts, per_step)
