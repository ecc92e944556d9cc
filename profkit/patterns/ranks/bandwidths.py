"""How fast collectives move data, by the measure of nccl-tests.

A rank of n that reduces S bytes with all others has to send and to receive 2 (n - 1) / n of S, whatever the algorithm.
So S over the time, times that factor, is what a link has carried: the bus bandwidth, which can be compared with the
link's rate (NVIDIA, nccl-tests, doc/PERFORMANCE.md). A rank alone does not show how long it waited for others inside: a
median holds such waits, the fastest call hardly does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.findings.values import ExchangeRate
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.patterns.ranks.names import element_bytes, operation_of
from profkit.trace.collectives import CollectiveArguments, read_arguments
from profkit.trace.statistics import distinct, median

_CARRIED: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: float(ranks - 1),
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
}
"""Times the bytes that a rank puts in. All ranks' parts together are what an all-gather moves."""
_LEAST_BYTES = 1 << 20
"""What a rank puts in: below that the start of a collective takes most of its time, and no link shows its rate."""
_A_MACHINE = 8
"""Devices. Smaller machines are told from larger ones by nothing in a trace."""


@derived_once
def bus_rates(facts: Facts) -> tuple[ExchangeRate, ...]:
    """By operation and ranks, the one with most time first; none if the recording does not tell sizes."""
    found = find_exchanges(facts)
    chosen = found.on_device & (found.said >= 0) & facts.steps.in_measured(found.issue_ns)
    said, length_ns = found.said[chosen], (found.end_ns - found.start_ns)[chosen]
    groups: dict[tuple[str, int, bool], list[tuple[int, float, np.ndarray]]] = {}
    for code in distinct(said).tolist():
        arguments = read_arguments(facts.trace.text_of(code))
        operation, size = operation_of(arguments.operation), _size_of(arguments)
        if operation in _CARRIED and size >= _LEAST_BYTES and arguments.size > 1:
            carried = size * _CARRIED[operation](arguments.size)
            key = operation, arguments.size, _may_be_local(arguments)
            groups.setdefault(key, []).append((size, carried, length_ns[said == code]))
    rates = [(sum(int(times.sum()) for _, _, times in of), _rate(*key, of)) for key, of in groups.items()]
    return tuple(rate for _, rate in sorted(rates, key=lambda one: -one[0]))


def _size_of(arguments: CollectiveArguments) -> int:
    """The bytes that a rank puts in; 0 if they are not told."""
    each = element_bytes(arguments.dtype)
    return arguments.elements * each if each is not None and arguments.elements > 0 else 0


def _may_be_local(arguments: CollectiveArguments) -> bool:
    """Whether one machine with eight devices can hold the group; ranks are numbered machine by machine."""
    members = arguments.members
    return arguments.size <= _A_MACHINE and (
        members is None or min(members) // _A_MACHINE == max(members) // _A_MACHINE
    )


def _rate(operation: str, ranks: int, is_local: bool, of: list[tuple[int, float, np.ndarray]]) -> ExchangeRate:
    sizes = np.concatenate([np.full(len(times), size) for size, _, times in of])
    times_ns = np.concatenate([times for _, _, times in of])
    rates = np.concatenate([carried / times * 1e9 for _, carried, times in of])
    return ExchangeRate(
        operation,
        ranks,
        len(times_ns),
        int(median(sizes)),
        int(median(times_ns)),
        round(median(rates)),
        round(rates.max()),
        is_local,
    )
