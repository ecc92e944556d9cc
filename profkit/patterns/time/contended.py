"""What is computed beside a collective, compared with the same computed alone.

A collective and a kernel share multiprocessors, memory and caches, so both get slower. A trace shows by how much if the
same work, of one kernel and one operator with one set of shapes, runs at times beside a collective and at times not.
Without shapes a name is not enough: one kernel multiplies matrices of many sizes.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.device.kernel_families import Family, family_of_kernel
from profkit.derive.facts import Facts, derived_once
from profkit.findings.values import BesideCommunication
from profkit.trace.events import Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows, median

_BY_DATA = frozenset(
    (
        Family.COMMUNICATION,
        Family.DECOMPOSITION,
        Family.EMBEDDING,
        Family.EXPERTS,
        Family.INDEXING,
        Family.OTHER,
        Family.SORTING,
        Family.SPARSE,
    )
)
"""Their time depends on the numbers, not on the shapes alone, or is not known to depend on the shapes."""
_LEAST_NS = 5_000
"""A shorter kernel's time is its beginning and its end, which older traces round to whole microseconds."""
_BESIDE = 0.9
"""Of a kernel's time. What is less beside a collective, but somewhat, counts for neither side."""
_AT_ONCE_NS = 1_000
"""Kernels that overlap longer share the device with each other as well."""
_LEAST_OF_KIND, _LEAST = 5, 20
"""Kernels of one kind on each side, and beside collectives in all: fewer show no median."""
_SLOWER_FROM, _MOSTLY = 1.1, 0.75
"""The ratio from which it is told, and the share of the kernels that have to be longer than the median alone. Clocks
and caches move times by a few per cent, in both directions."""
_SAME_BELOW = 1.05
"""Less is no difference that a median shows."""


@derived_once
def beside_communication(facts: Facts) -> BesideCommunication | None:
    """None if too few kernels run on both sides, if the shapes are not recorded, or if neither is clear."""
    if not facts.device.communicating.total_ns or not facts.operators.has_shapes:
        return None
    work, operator = _comparable(facts)
    events = facts.trace.events
    length_ns = events.duration_ns[work]
    covered_ns = facts.device.communicating.covered_within(events.start_ns[work], events.ends_of(work))
    beside, alone = covered_ns >= _BESIDE * length_ns, covered_ns == 0
    codes = (events.dims_code, events.types_code, events.concrete_code)
    first, kind = distinct_rows(events.name_code[work], *(code[operator] for code in codes))
    counts = np.stack([np.bincount(kind[side], minlength=len(first)) for side in (beside, alone)])
    enough = np.flatnonzero((counts >= _LEAST_OF_KIND).all(axis=0))
    if counts[0][enough].sum() < _LEAST:
        return None
    usual_ns = np.stack([_medians(kind, length_ns, side, enough) for side in (beside, alone)], axis=1)
    limit_ns = np.full(len(first), np.inf)
    limit_ns[enough] = usual_ns[:, 1]
    mine = beside & np.isfinite(limit_ns[kind])
    longer = float((length_ns[mine] > limit_ns[kind[mine]]).mean())
    taken_ns, alone_ns = ((counts[0, enough] * usual_ns[:, side]).sum() for side in (0, 1))
    ratio = float(taken_ns / alone_ns)
    if ratio >= _SAME_BELOW and (ratio < _SLOWER_FROM or longer < _MOSTLY):
        return None
    number = counts[:, enough].sum(axis=1)
    more_ns = facts.steps.per_step_ns(max(0, int(taken_ns - alone_ns)))
    return BesideCommunication(int(number[0]), int(number[1]), round(ratio, 4), more_ns)


def _medians(kind: Int64s, length_ns: Int64s, side: Bools, wanted: Int64s) -> Float64s:
    """Of the kernels on one side, by kind."""
    rows = np.flatnonzero(side)
    rows = rows[np.argsort(kind[rows], kind="stable")]
    begin, end = (np.searchsorted(kind[rows], wanted, side=edge) for edge in ("left", "right"))
    return np.array([median(length_ns[rows[a:b]]) for a, b in zip(begin.tolist(), end.tolist(), strict=True)])


def _comparable(facts: Facts) -> tuple[Rows, Rows]:
    """The kernels that compute, with the operator that launched each: of the measured steps, on one device, long enough
    to compare, and none beside another kernel that computes."""
    launches, events, trace = facts.launches, facts.trace.events, facts.trace
    kernels = (events.category[launches.work] == Category.KERNEL) & ~facts.device.collective
    work, operator = launches.work[kernels], launches.operator[kernels]
    if not work.size or len({trace.lanes[lane].process for lane in distinct(events.lane[work]).tolist()}) > 1:
        return work[:0], operator[:0]
    order = np.argsort(events.start_ns[work], kind="stable")
    work, operator = work[order], operator[order]
    start_ns, end_ns = events.start_ns[work], events.ends_of(work)
    before_ns = np.concatenate([start_ns[:1], np.maximum.accumulate(end_ns)[:-1]])
    after_ns = np.concatenate([start_ns[1:], end_ns[-1:]])
    single = (before_ns - start_ns <= _AT_ONCE_NS) & (end_ns - after_ns <= _AT_ONCE_NS)
    of = operator.clip(min=0)
    # Lists of tensors have no shapes in older traces.
    shaped = (operator >= 0) & (facts.operators.input_bytes[of] > 0) & facts.measured[of]
    codes = distinct(events.name_code[work])
    fit = codes[[family_of_kernel(trace.names[code]) not in _BY_DATA for code in codes.tolist()]]
    chosen = single & shaped & np.isin(events.name_code[work], fit) & (end_ns - start_ns >= _LEAST_NS)
    return work[chosen], operator[chosen]
