"""What the device's kernels do in a step, family by family, whether or not an operator is known that launched them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.device.kernel_families import Family, family_of_kernel
from profkit.derive.facts import Facts
from profkit.trace.events import Category
from profkit.trace.statistics import distinct


class FamilyTime(Struct, frozen=True):
    """Kernels of one family in a step of median length: their time one by one, though some may run at once, its
    ``fraction`` of all kernels' time, and how many there are. Most of it goes to kernels of the name with this
    ``code``, which take ``code_fraction`` of all kernels' time."""

    family: Family
    step_ns: float
    fraction: float
    count: float
    code: int
    code_fraction: float


def kernel_families(facts: Facts) -> tuple[FamilyTime, ...]:
    """All families with kernels in the measured steps, the one with most time first."""
    events, launches, steps = facts.trace.events, facts.launches, facts.steps
    rows = launches.work[steps.in_measured(launches.launched_ns)]
    rows = rows[events.category[rows] == Category.KERNEL]
    taken_ns = np.bincount(events.name_code[rows], events.duration_ns[rows], minlength=len(facts.trace.names))
    count = np.bincount(events.name_code[rows], minlength=len(facts.trace.names))
    codes = distinct(events.name_code[rows])
    total_ns = float(taken_ns.sum())
    if not total_ns:
        return ()
    per_step = steps.usual_ns / steps.measured_ns
    of_family: dict[Family, list[int]] = {}
    for code in codes.tolist():
        of_family.setdefault(family_of_kernel(facts.trace.names[code]), []).append(code)
    found = []
    for family, mine in of_family.items():
        most = max(mine, key=taken_ns.__getitem__)
        ns, number = float(taken_ns[mine].sum()), float(count[mine].sum())
        of_most = float(taken_ns[most]) / total_ns
        found.append(FamilyTime(family, ns * per_step, ns / total_ns, number * per_step, most, of_most))
    return tuple(sorted(found, key=lambda one: -one.step_ns))
