"""What is wrong with a transfer. Each has at most one fault, and one rule reports each fault, so no time is claimed
twice."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from profkit.derive.facts import Facts, derived_once
from profkit.derive.steps.boundaries import measured_numbers
from profkit.patterns.frequency import in_most_steps
from profkit.patterns.loops.located import call_marks, in_located_step
from profkit.patterns.program import length_ns, spent_ns
from profkit.patterns.time.wait_causes import STAGED_BYTES, WaitCause, wait_causes
from profkit.patterns.transfers.copies import Transfers, has_unlinked_copies, program_transfers, waits_below
from profkit.patterns.transfers.created import created_tensors
from profkit.run.directory import unprofiled_steps
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows
from profkit.trace.statistics import among, distinct, median

LEAST_TOGETHER = 8
"""Small copies in a row. A batch of a language model or of a detector holds up to six tensors; packing these would save
five calls."""
_LONGEST_PAUSE = 4
"""How many times the previous copy's duration. Making a small tensor of an array or a list takes that long; what comes
later arrives by itself, and the others would have to wait for it."""

_LEAST_AGAIN = 3
"""Two transfers, one at the step's beginning and one at its end, also have kernels in between."""
_AMID = 2
"""A program's first step, numbered 0, may still send its model, and the next one what the first had left out."""


class TransferFault(IntEnum):
    """In rising order of precedence among those to the device: what need not be sent needs no better way to be sent."""

    NONE = 0
    PAGEABLE = 1
    """Data from memory that is not pinned, for which the host waits, and the small tensors of the same batch."""
    MANY_SMALL = 2
    """One of many small ones in a row."""
    REPEATED = 3
    """What the step before sent too."""
    CREATED = 4
    """What the host made up: `host-created-tensor` reports it."""
    FROM_DEVICE = 5
    """Data that the host waits for, in the middle of a step or more than a few numbers."""


@derived_once
def transfer_faults(facts: Facts) -> NDArray[np.int64]:
    """A `TransferFault` for each of the program's transfers."""
    transfers = program_transfers(facts)
    if not len(transfers):
        return np.zeros(0, dtype=np.int64)
    fault = np.where(_is_pageable_data(facts, transfers), int(TransferFault.PAGEABLE), int(TransferFault.NONE))
    created = np.array([tensor.copy for tensor in created_tensors(facts)], dtype=np.int64)
    needless = {
        TransferFault.REPEATED: _is_repeated(facts, transfers),
        TransferFault.CREATED: among(transfers.place, created),
    }
    others = ~np.logical_or.reduce([*needless.values()])
    run = np.where(others, runs_of_small(facts, transfers), NONE)
    length = np.bincount(run[run >= 0], minlength=1)
    fault[(run >= 0) & (length[run] >= LEAST_TOGETHER)] = TransferFault.MANY_SMALL
    for one, where in needless.items():
        fault[where & transfers.to_device] = one
    fault[_is_held_up_by(facts, transfers)] = TransferFault.FROM_DEVICE
    return fault


def faulty_transfers(facts: Facts, fault: TransferFault) -> Transfers:
    """The transfers with this fault."""
    return program_transfers(facts).at(transfer_faults(facts) == fault)


@derived_once
def waits_told_of(facts: Facts) -> Bools:
    """Waits for transfers that have a fault of their own, so the waits are no fault of another kind."""
    faulty = program_transfers(facts).at(transfer_faults(facts) != TransferFault.NONE)
    return facts.trace.mask_of(waits_below(facts, faulty.place))


def runs_of_small(facts: Facts, transfers: Transfers) -> Int64s:
    """The number of the run that each transfer belongs to: small ones to the device, one after another in one step,
    with no kernel launched and no long pause in between."""
    small = np.flatnonzero(transfers.to_device & (transfers.size_bytes <= STAGED_BYTES))
    small = small[facts.trace.events.lane[transfers.call[small]] == facts.steps.main_lane]
    run = np.full(len(transfers), NONE, dtype=np.int64)
    if small.size:
        place = transfers.place[small]
        stretch, end_ns = _stretch(facts, transfers)[small], facts.tree.end_ns[place]
        pause = length_ns(facts, end_ns[:-1], np.maximum(facts.trace.events.start_ns[place[1:]], end_ns[:-1]))
        longest = _LONGEST_PAUSE * _slowed_by_marks(facts) * spent_ns(facts, place[:-1])
        begins = (np.diff(stretch) != 0) | (pause > longest)
        run[small] = np.concatenate([[0], np.cumsum(begins)])
    return run


def _slowed_by_marks(facts: Facts) -> float:
    """How many times longer the steps are than those without a profiler, if all have their lines marked. Marking and
    watching calls takes its time between the operators: 0.25 ms each, where a copy takes 0.09 (H200)."""
    plain = unprofiled_steps(facts.run, None)[0]
    if not plain or not facts.steps.measured_are_marked:
        return 1.0
    return max(1.0, facts.steps.median_ns / max(median(plain), 1.0))


def _is_pageable_data(facts: Facts, transfers: Transfers) -> Bools:
    """Large copies from pageable memory, and what else is sent from it before the next kernel is launched: the rest of
    the same batch, at which the host would wait instead."""
    pageable = transfers.to_device & transfers.is_pageable
    large = pageable & (transfers.size_bytes > STAGED_BYTES)
    stretch = _stretch(facts, transfers)
    return pageable & among(stretch, stretch[large])


def _stretch(facts: Facts, transfers: Transfers) -> Int64s:
    """Equal for transfers of one step with no kernel launched between their calls."""
    launched = np.searchsorted(_kernels_launched_ns(facts), facts.trace.events.start_ns[transfers.call])
    steps = len(facts.steps)
    return launched * (steps + 1) + facts.step_of(transfers.call)


def _is_repeated(facts: Facts, transfers: Transfers) -> Bools:
    """Those of tensors that the run saw being given to the same call, unchanged, in two steps."""
    known = facts.run.recomputation
    if known is None:
        return np.zeros(len(transfers), dtype=bool)
    mark_of = call_marks(facts)
    numbers = np.array([number for number in known.each_step if 0 <= number < len(mark_of)], dtype=np.int64)
    marks = mark_of[numbers]
    located = np.where(facts.repeats.exact[transfers.place], facts.repeats.row[transfers.place], NONE)
    here = among(transfers.place, in_located_step(facts, transfers.place))  # if no other step was recorded
    located = np.where(here, transfers.place, located)
    around = facts.tree.nearest_ancestor(facts.trace.mask_of(marks[marks >= 0]), of=located.clip(min=0))
    return (located >= 0) & (around >= 0)


def _is_held_up_by(facts: Facts, transfers: Transfers) -> Bools:
    """Reads of data that the host waits for. A few numbers at the beginning or end of a step are logging, which
    `host-sync-in-step` judges."""
    waiting = facts.waits.operator[wait_causes(facts) == WaitCause.DATA_FROM_DEVICE]
    data = ~transfers.to_device & among(facts.calling[transfers.call].astype(np.int64), waiting)
    return data & ((transfers.size_bytes > STAGED_BYTES) | _is_amid_step(facts, transfers.place))


def _is_amid_step(facts: Facts, place: Rows) -> Bools:
    """Whether kernels are launched in the same step both before the operator and after it."""
    kernels, step = _kernels_launched_ns(facts), facts.step_of(place)
    first, last = (np.searchsorted(kernels, bound[step]) for bound in (facts.steps.start_ns, facts.steps.end_ns))
    before = np.searchsorted(kernels, facts.trace.events.start_ns[place])
    after = np.searchsorted(kernels, facts.tree.end_ns[place])
    return (before > first) & (after < last)


@derived_once
def _kernels_launched_ns(facts: Facts) -> Int64s:
    """When the kernels were launched, in order."""
    launches = facts.launches
    kernels = facts.trace.events.category[launches.work] == Category.KERNEL
    return np.sort(launches.launched_ns[kernels & (launches.call >= 0)])


def comes_again(facts: Facts, transfers: Transfers) -> bool:
    """Whether most steps hold one of the transfers. In a recording of one step: whether profkit recorded it amid the
    program, where a step is like others, or kernels run between three transfers. A model's parameters are sent in a
    row, before the steps or in the first."""
    if len(facts.steps) > 1:
        return in_most_steps(facts, transfers.place)
    return _is_amid_program(facts) or len(distinct(_stretch(facts, transfers))) >= _LEAST_AGAIN


def _is_amid_program(facts: Facts) -> bool:
    """Whether profkit let steps pass before those that it recorded."""
    numbers = measured_numbers(facts.trace, facts.steps) if facts.run.step_signal is not None else None
    return numbers is not None and numbers[0] >= _AMID


def why_untold(facts: Facts, fault: TransferFault) -> str:
    """Why nothing can be said of transfers with this fault although there may be some; empty if it can."""
    if not len(program_transfers(facts)) and has_unlinked_copies(facts):
        return "the recording does not say which calls copy between host and device"
    faulty = faulty_transfers(facts, fault)
    if len(facts.steps) == 1 and len(faulty) and not comes_again(facts, faulty):
        return "one step was recorded: whether its copies come in every step is not known"
    return ""


def lines_coming_again(facts: Facts, transfers: Transfers) -> list[Transfers]:
    """Those of each line at which they come again and again; those without a line are one group."""
    return [line for line in transfers.by_line() if comes_again(facts, line)]


def coming_again(facts: Facts, transfers: Transfers) -> Transfers:
    """All of `lines_coming_again`."""
    lasting = np.array([line.site[0] for line in lines_coming_again(facts, transfers)], dtype=np.int64)
    return transfers.at(among(transfers.site, lasting))


def waited_ns(facts: Facts, transfers: Transfers) -> int:
    """How long the host waits per step where these transfers are called for."""
    return facts.steps.per_step_ns(int(spent_ns(facts, waits_below(facts, transfers.place)).sum()))


def waited_before_ns(facts: Facts, transfers: Transfers) -> int:
    """How much of that is a wait for what the stream had to do before: no copy, from any memory, begins earlier."""
    events = facts.trace.events
    place, first = np.unique(transfers.place, return_index=True)
    call, free_ns = transfers.call[first], _free_ns(facts, transfers.work[first])
    until_ns = np.minimum(free_ns, facts.tree.end_ns[place])
    return facts.steps.per_step_ns(int((until_ns - events.start_ns[call]).clip(min=0).sum()))


def _free_ns(facts: Facts, work: Rows) -> Int64s:
    """For these pieces of device work, when the stream of each was done with what came before it."""
    known, free_ns = _known_free_ns(facts)
    return free_ns[np.searchsorted(known, work)]


@derived_once
def _known_free_ns(facts: Facts) -> tuple[Rows, Int64s]:
    """All work of the device in ascending order, and when the stream of each was done with what came before it."""
    events, work = facts.trace.events, np.sort(facts.launches.work)
    free_ns = np.zeros(len(work), dtype=np.int64)
    for lane in distinct(events.lane[work]):
        at = np.flatnonzero(events.lane[work] == lane)
        at = at[np.argsort(events.start_ns[work[at]], kind="stable")]
        free_ns[at[1:]] = np.maximum.accumulate(events.ends_of(work[at]))[:-1]
    return work, free_ns
