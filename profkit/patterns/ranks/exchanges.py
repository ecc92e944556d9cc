"""The collectives of one rank: the kernels of NCCL and RCCL, or what a thread of gloo runs, and the call that asked.

A kernel says what it exchanges, or the call that launched it does (``record_param_comms``), or, in traces from before
PyTorch 2.2, the range around the launch has the shapes. Gloo's calls return at once; its threads take the work in the
order in which it was asked for.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.ranks.names import elements_of, is_awaited, operation_of
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

_ON_DEVICE = ("nccl:", "rccl:", "xccl:", "hccl:", "record_param_comms")
_ON_HOST = ("gloo:", "mpi:", "ucc:")
_ASKED = "c10d::"
_RUN_AS = {"reduce_scatter": "all_reduce"}
"""gloo reduces all of it everywhere and keeps a part (``ProcessGroupGloo::_reduce_scatter_base``), under that name."""


class Exchanges(Struct, frozen=True):
    """Columns over the collectives, in the order in which the host asked for them.

    ``row`` is the kernel, or the range of the thread that runs it; ``call`` the outermost event of the host that asked
    for it, `NONE` where none is known; ``shapes`` the event that has its shapes, or `NONE`; ``said`` the code of what
    is said of it, or `NONE`. ``awaited`` says that the call returned when it was over, 0 that it did not, `NONE` that
    it is not known.
    """

    row: Rows
    call: Rows
    shapes: Rows
    said: Int32s
    start_ns: Int64s
    end_ns: Int64s
    issue_ns: Int64s
    issued_ns: Int64s
    on_device: Bools
    awaited: Int64s

    def __len__(self) -> int:
        return len(self.row)


@derived_once
def find_exchanges(facts: Facts) -> Exchanges:
    parts = (_of_device(facts), _of_host(facts))
    names = Exchanges.__struct_fields__
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    order = np.argsort(joined["issue_ns"], kind="stable")
    order = order[(joined["end_ns"] > joined["start_ns"])[order]]  # nothing is exchanged in no time: its length is lost
    return Exchanges(**{name: column[order] for name, column in joined.items()})


def _of_device(facts: Facts) -> Exchanges:
    """One for each launch: kernels of one launch in one stream belong together."""
    trace, events, launches = facts.trace, facts.trace.events, facts.launches
    kernels = facts.device.collective
    row, launcher = launches.work[kernels], launches.owner[kernels]
    ranges = trace.where_name(lambda name: name.startswith(_ON_DEVICE))
    owner = _around(facts, ranges, launcher)
    saying = events.collective_code >= 0
    by_call = _around(facts, saying, launcher)
    said = np.where(saying[row], events.collective_code[row], _taken(events.collective_code, by_call))
    alone = np.where(owner >= 0, owner, -2 - np.arange(len(row)))
    first, number = distinct_rows(alone, events.lane[row], events.name_code[row]) if len(row) else (row, row)
    start_ns, end_ns = events.start_ns[row], events.ends_of(row)
    begin, end = start_ns[first].copy(), end_ns[first].copy()
    np.minimum.at(begin, number, start_ns)
    np.maximum.at(end, number, end_ns)
    asking = trace.where_name(lambda name: name.startswith((*_ON_DEVICE, _ASKED)))
    call = _outermost_around(facts, asking, launcher[first])
    call = np.where(call >= 0, call, launcher[first])
    issue = np.where(call >= 0, np.minimum(events.start_ns[call], begin), begin)
    issued = np.where(call >= 0, facts.tree.end_ns[call], begin)
    named = _around(facts, trace.where_name(lambda name: name.startswith(_ON_DEVICE[:-1])), launcher[first])
    unknown = np.full(len(first), NONE)
    return Exchanges(
        row[first],
        call,
        named,
        said[first].astype(np.int32),
        begin,
        end,
        issue,
        issued,
        np.ones(len(first), dtype=bool),
        unknown,
    )


def _taken(column: Int32s, rows: Rows) -> Int32s:
    return np.where(rows >= 0, column[rows], np.int32(NONE))


def _around(facts: Facts, wanted: Bools, rows: Rows) -> Rows:
    """The innermost of the wanted events around each of the rows, itself included; `NONE` without one."""
    found = np.full(len(rows), NONE, dtype=np.int64)
    known = np.flatnonzero(rows >= 0)
    found[known] = facts.tree.nearest_ancestor(wanted, include_self=True, of=rows[known])
    return found


def _outermost_around(facts: Facts, wanted: Bools, rows: Rows) -> Rows:
    return _around(facts, facts.tree.outermost(wanted), rows)


def _of_host(facts: Facts) -> Exchanges:
    """What gloo's threads ran, each with the call that asked for it, if that is in the recording."""
    trace, events = facts.trace, facts.trace.events
    ranges = events.category == Category.ANNOTATION
    ran = np.flatnonzero(ranges & trace.where_name(lambda name: name.startswith(_ON_HOST)))
    asked = (events.category == Category.OPERATOR) & trace.where_name(lambda name: name.startswith(_ASKED))
    asked &= ~facts.tree.holding(trace.where_name(lambda name: name.startswith(_ON_DEVICE)))
    calls = np.flatnonzero(facts.tree.outermost(asked)) if ran.size else ran
    call = _who_asked(facts, ran, calls)
    known = call >= 0
    begin, end = events.start_ns[ran], events.ends_of(ran)
    issue = np.where(known, np.minimum(events.start_ns[call], begin), begin)
    issued = np.where(known, facts.tree.end_ns[call], begin)
    shapes = np.where(_has_shapes(facts, ran), ran, call)
    reported = [
        is_awaited(trace.text_of(int(code))) if code >= 0 else None for code in _taken(events.concrete_code, call)
    ]
    awaited = np.array([NONE if one is None else int(one) for one in reported], dtype=np.int64)
    said = _taken(events.collective_code, np.where(_taken(events.collective_code, ran) >= 0, ran, call))
    return Exchanges(
        ran, call, shapes, said.astype(np.int32), begin, end, issue, issued, np.zeros(len(ran), dtype=bool), awaited
    )


def _who_asked(facts: Facts, ran: Rows, calls: Rows) -> Rows:
    """The call behind each range of a backend's thread: of one operation and size, they come in the same order. Two
    threads may begin what they took in the other order, so sizes tell more than times."""
    found = np.full(len(ran), NONE, dtype=np.int64)
    if not ran.size or not calls.size:
        return found
    start_ns = facts.trace.events.start_ns
    ran_kind, called_kind = _kinds(facts, ran, False), _kinds(facts, calls, True)
    if not set(ran_kind) <= set(called_kind):  # shapes of one of the two only
        ran_kind, called_kind = [kind[:1] for kind in ran_kind], [kind[:1] for kind in called_kind]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys([*ran_kind, *called_kind]))}
    of_ran, of_called = (np.array([numbers[kind] for kind in kinds]) for kinds in (ran_kind, called_kind))
    for number in distinct(of_ran):
        mine, theirs = np.flatnonzero(of_ran == number), calls[of_called == number]
        mine, theirs = mine[np.argsort(start_ns[ran[mine]])], theirs[np.argsort(start_ns[theirs])]
        before = np.searchsorted(start_ns[ran[mine]], start_ns[theirs])  # what ran before it was asked for is others'
        place = np.arange(len(theirs))
        place += np.maximum.accumulate((before - place).clip(min=0))
        place = place[place < len(mine)]
        found[mine[place]] = theirs[: len(place)]
    return found


def _has_shapes(facts: Facts, ran: Rows) -> Bools:
    """Which ranges of a backend's threads have shapes of their own: those copied from the located step may be another
    one's, as the threads share the work in any order."""
    return (facts.trace.events.dims_code[ran] >= 0) & (facts.repeats.row[ran] < 0)


def _kinds(facts: Facts, rows: Rows, are_calls: bool) -> list[tuple[object, ...]]:
    """The operation and the number of elements of each."""
    trace, events = facts.trace, facts.trace.events
    kinds: list[tuple[object, ...]] = []
    shapes = events.dims_code[rows] if are_calls else np.where(_has_shapes(facts, rows), events.dims_code[rows], NONE)
    for name, dims in zip(events.name_code[rows].tolist(), shapes.tolist(), strict=True):
        operation = operation_of(trace.names[name])
        counted = operation != "barrier" and dims >= 0
        size = elements_of(trace.texts[dims], operation, are_calls) if counted else None
        kinds.append((_RUN_AS.get(operation, operation), size))
    return kinds
