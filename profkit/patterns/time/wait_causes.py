"""Why the host waits for the device. Each wait has one cause, and for each cause either one rule judges it or there is
a reason why none does: no wait falls between two rules."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.program import copies_named, named_operators
from profkit.trace.events import Bools, Category, Int64s
from profkit.trace.statistics import among

_SIZES = ("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive")
"""Operators that wait to learn the size of their result."""
READS = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
STAGED_BYTES = 64 << 10
"""CUDA stages copies of up to this size from pageable memory (CUDA Runtime API, "API synchronization behavior"): the
host goes on at once, and the copy itself costs next to nothing. Larger ones wait for the copy."""
_NUMBER_BYTES = 16
"""The largest element, a complex double: a copy of at most this size reads one number."""

_LONG_WAIT_NS = 100_000
"""A wait on an idle device takes about 10 µs."""
_COVERED_SHARE = 0.1
"""A wait for recorded work overlaps that work; one that overlaps less than this waited for something else."""


class WaitCause(IntEnum):
    """In rising order of precedence: a wait in a DataLoader is the loader's, whatever it waits for."""

    OTHER = 0
    """An operator waits, and no copy by it is recorded."""
    CALL = 1
    """The program, or a library that it calls, waits outside of operators: ``torch.cuda.synchronize()``."""
    UNRECORDED_WORK = 2
    """Such a wait, but a long one during which hardly any recorded work runs: what it waits for was launched before the
    recording began, or is missing from it, so nobody knows what the wait costs."""
    DATA_TO_DEVICE = 3
    """A copy of more than 64 KiB from memory that is not pinned, or one that is asked to block."""
    SMALL_COPY_TO_DEVICE = 4
    DATA_FROM_DEVICE = 5
    NUMBER_FROM_DEVICE = 6
    SIZE_OF_RESULT = 7
    """The elements of a mask, or distinct values, are counted: `data-dependent-shape` judges it."""
    PYTORCHS_OWN = 8
    """In an optimizer's step, GradScaler's check, a sampler's seed, a DataLoader, or profkit's pauses."""
    ANOTHER_THREAD = 9
    """It holds up neither the main thread nor one that takes turns with it."""
    NOT_MEASURED = 10
    """It is in no measured step."""
    PROFILER = 11


@derived_once
def wait_causes(facts: Facts) -> NDArray[np.int64]:
    """A `WaitCause` for each of the facts' waits."""
    waits, events = facts.waits, facts.trace.events
    rows, operator = waits.rows, waits.operator
    inside = operator >= 0
    to_device, from_device = _copied(facts, "HtoD")[operator], _copied(facts, "DtoH")[operator]
    sizes = facts.tree.under(named_operators(facts, *_SIZES))
    cause = np.where(inside, int(WaitCause.OTHER), int(WaitCause.CALL))
    of_data = (
        (await_unrecorded_work(facts), WaitCause.UNRECORDED_WORK),
        (inside & (to_device > STAGED_BYTES), WaitCause.DATA_TO_DEVICE),
        (inside & (to_device > 0) & (to_device <= STAGED_BYTES), WaitCause.SMALL_COPY_TO_DEVICE),
        (inside & (from_device > _NUMBER_BYTES), WaitCause.DATA_FROM_DEVICE),
        (inside & (from_device > 0) & (from_device <= _NUMBER_BYTES), WaitCause.NUMBER_FROM_DEVICE),
        (facts.tree.under(named_operators(facts, *READS))[rows], WaitCause.NUMBER_FROM_DEVICE),
        (sizes[rows], WaitCause.SIZE_OF_RESULT),
        (pytorchs_own(facts)[rows], WaitCause.PYTORCHS_OWN),
        (~facts.serial_lanes[events.lane[rows]], WaitCause.ANOTHER_THREAD),
        (~facts.measured[rows], WaitCause.NOT_MEASURED),
        (waits.own, WaitCause.PROFILER),
    )
    for where, why in of_data:
        cause = np.where(where, int(why), cause)
    return cause.astype(np.int64)


def await_unrecorded_work(facts: Facts) -> Bools:
    """Which of the facts' waits are long and pass while hardly any recorded work of the device runs."""
    start_ns, length_ns = facts.trace.events.start_ns[facts.waits.rows], facts.waits.duration_ns
    covered_ns = facts.device.any_occupied.covered_within(start_ns, start_ns + length_ns)
    return (length_ns >= _LONG_WAIT_NS) & (covered_ns < _COVERED_SHARE * length_ns)


def _copied(facts: Facts, direction: str) -> Int64s:
    """For each operator the bytes that it copies in this direction."""
    events, launches = facts.trace.events, facts.launches
    copies = copies_named(facts, direction) & (launches.operator >= 0)
    size = np.zeros(len(events), dtype=np.int64)
    np.add.at(size, launches.operator[copies], events.size_bytes[launches.work[copies]].clip(min=1))
    return size


@derived_once
def pytorchs_own(facts: Facts) -> Bools:
    """Waits inside a DataLoader, an optimizer's step or profkit's pauses, and reads that PyTorch makes itself
    elsewhere.

    A DataLoader and a sampler draw a seed, ``torch.empty(()).random_().item()``. GradScaler reads ``found_inf`` just
    before the optimizer's step, in a step with ``_amp_foreach_non_finite_check_and_unscale_``.
    """
    trace, events = facts.trace, facts.trace.events
    inside = facts.updates.inside | facts.tree.under(facts.loading | (events.category == Category.PAUSE))
    calls = np.flatnonzero(facts.tree.outermost(events.category == Category.OPERATOR))
    calls = calls[events.lane[calls] == facts.steps.main_lane]
    reads = named_operators(facts, *READS)[calls]
    seeds = named_operators(facts, "aten::random_")[np.append(calls[:1], calls[:-1])]
    step = facts.steps.index_of(events.start_ns)
    scaled = step[named_operators(facts, "aten::_amp_foreach_non_finite_check_and_unscale_")]
    checks = inside[np.append(calls[1:], calls[-1:])] & among(step[calls], scaled)
    return inside | facts.tree.under(trace.mask_of(calls[reads & (seeds | checks)]))
