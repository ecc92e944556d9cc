"""The measured steps' launches as points on the roofline.

Each kernel belongs to the innermost call around its launch that has a model. Without a device the calls themselves take
the time, each without the modelled calls inside it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs

from profkit.derive.device.kernel_families import Family
from profkit.derive.facts import Facts, derived_once
from profkit.findings.values import GOOD_RATE
from profkit.run.directory import Rates
from profkit.savings.cost_models.devices import in_tf32, presumed_rates
from profkit.savings.roofline.calls import Call, read_call
from profkit.savings.roofline.demand import PRODUCTS, USUAL_SHARES, Demand
from profkit.savings.roofline.models import demand_of, has_model
from profkit.savings.roofline.products import Experts
from profkit.trace.events import NONE, Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

LARGEST_CACHE = 256e6
"""Bytes: that of an MI300X, the largest of a device known here."""
_BEYOND_MEMORY = 1.25
"""Times the data sheet's rate: memory may be clocked a little higher, and a cache may hold the first tensors."""
_BEYOND_ARITHMETIC = 3.0
"""Times the peak. Winograd's convolutions of 3x3 multiply 2.25 times less than is counted (Lavin and Gray, Fast
Algorithms for Convolutional Neural Networks, 2016)."""
_FAMILIES = tuple(Family)


class Point(Struct, frozen=True):
    """All calls of one operator with one set of inputs. ``count`` calls of a step take ``step_ns``, a mean;
    ``least_ns`` is the roofline of one. ``rows`` are the calls (as rows of the trace), ``work`` their kernels, and
    ``owner`` the call of each of these."""

    call: Call
    demand: Demand
    rate: str
    count: float
    step_ns: float
    least_ns: float
    is_memory_bound: bool
    rows: Rows
    work: Rows
    owner: Rows

    @property
    def each_ns(self) -> float:
        """What one call takes, a mean."""
        return self.step_ns / self.count

    @property
    def of_possible(self) -> float:
        """The share of what the device could do, at most 1."""
        return min(1.0, self.least_ns / self.each_ns) if self.each_ns else 1.0

    @property
    def operations_per_s(self) -> float:
        return self.demand.operations / self.each_ns * 1e9 if self.each_ns else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.demand.bytes / self.each_ns * 1e9 if self.each_ns else 0.0


class Roofline(Struct, frozen=True):
    """``points`` of the measured steps, the one with most time first. ``worked_ns`` is all device work of a step one by
    one (of the processor: all modelled calls), ``step_ns`` the mean length of a step, ``devices`` how many worked."""

    rates: Rates
    points: tuple[Point, ...]
    worked_ns: float
    step_ns: float
    devices: int = 1

    @property
    def counted(self) -> float:
        """The share of the device's work whose operations and bytes are known."""
        return min(1.0, sum(point.step_ns for point in self.points) / self.worked_ns) if self.worked_ns else 0.0

    @property
    def utilisation(self) -> float:
        """The products' operations in a step over what the device could compute meanwhile (MFU; Chowdhery et al., PaLM,
        2022, appendix B). Recomputed ones count."""
        peak_ns = sum(point.count * point.demand.computing_ns(self.rates, point.rate) for point in self.points)
        return peak_ns / self.step_ns / self.devices if self.step_ns else 0.0

    @property
    def operations(self) -> float:
        """Of products, in a step."""
        return sum(point.count * point.demand.operations for point in self.points)


@derived_once
def roofline_of(facts: Facts) -> Roofline | None:
    """The measured steps on the roofline. None without shapes, steps, or known rates of the device."""
    rates = presumed_rates(facts)
    if rates is None or not facts.operators.has_shapes or not facts.steps.measured_ns:
        return None
    calls = _modelled(facts)
    work, owner = _kernels(facts, calls) if facts.device.present else _own(facts, calls)
    events = facts.trace.events
    per_step = 1.0 / facts.steps.measured_count
    time_ns = _own_ns(facts, calls)[work] if not facts.device.present else events.duration_ns[work]
    known = owner >= 0
    points = _points(facts, rates, work[known], owner[known], time_ns[known], per_step)
    devices = {facts.trace.lanes[lane].process for lane in distinct(events.lane[work]).tolist()}
    count = len(devices) if facts.device.present else 1
    return Roofline(rates, points, float(time_ns.sum()) * per_step, facts.steps.measured_ns * per_step, max(count, 1))


@derived_once
def least_of_work(facts: Facts) -> Float64s:
    """For each event how long the roofline lets it take, in nanoseconds, if it is work of the device that a point
    counts: the call's least time by the kernels' shares of it. NaN for all others."""
    least = np.full(len(facts.trace.events), np.nan)
    roofline = roofline_of(facts)
    if roofline is None or not facts.device.present:
        return least
    for point in roofline.points:
        least[point.work] = facts.trace.events.duration_ns[point.work] * (point.least_ns / max(point.each_ns, 1.0))
    return least


@derived_once
def usual_of_work(facts: Facts) -> Float64s:
    """For each event the share of the possible that work of its kind reaches with nothing wrong; `GOOD_RATE` if that is
    not known to be less."""
    usual = np.full(len(facts.trace.events), GOOD_RATE)
    roofline = roofline_of(facts)
    for point in () if roofline is None else roofline.points:
        usual[point.work] = USUAL_SHARES.get(point.demand.kind, GOOD_RATE)
    return usual


def _modelled(facts: Facts) -> Bools:
    """The calls whose demand is known."""
    trace, events = facts.trace, facts.trace.events
    rows = np.flatnonzero(
        trace.where_name(has_model) & (events.category == Category.OPERATOR) & (events.dims_code >= 0)
    )
    if not rows.size:
        return np.zeros(len(events), dtype=bool)
    first, kind = _kinds(facts, rows)
    demands = [_demand(facts, row) for row in rows[first].tolist()]
    known = np.array([demand is not None for demand in demands], dtype=bool)[kind]
    families = np.array([_FAMILIES.index(demand.kind) if demand is not None else NONE for demand in demands])[kind]
    mask: Bools = trace.mask_of(rows[known])
    mask[_passing_on(facts, mask, rows[known], families[known])] = False
    return mask


def _passing_on(facts: Facts, calls: Bools, rows: Rows, families: Int64s) -> Rows:
    """The calls with one of their own family right inside, such as ``linear`` around ``addmm``: the inner one does the
    work, and the operations would count twice."""
    family = np.full(len(calls), NONE, dtype=np.int64)
    family[rows] = families
    above = facts.tree.nearest_ancestor(calls, of=rows)
    passing: Rows = above[(above >= 0) & (family[above] == families)]
    return passing


def _kinds(facts: Facts, rows: Rows) -> tuple[Int64s, Int64s]:
    events = facts.trace.events
    columns = (events.name_code, events.dims_code, events.types_code, events.concrete_code)
    return distinct_rows(*(column[rows] for column in columns))


def _texts(facts: Facts, row: int) -> tuple[str, str, str, str]:
    trace, events = facts.trace, facts.trace.events
    columns = (events.dims_code, events.types_code, events.concrete_code)
    dims, types, values = (trace.text_of(int(column[row])) for column in columns)
    return trace.name_of(row), dims, types, values


def _demand(facts: Facts, row: int) -> Demand | None:
    return demand_of(*_texts(facts, row))


def _kernels(facts: Facts, calls: Bools) -> tuple[Rows, Rows]:
    """Work of the measured steps, and the call that it belongs to or `NONE`. Transfers from and to the host are no
    work of the device's memory."""
    events, launches = facts.trace.events, facts.launches
    inside = facts.steps.in_measured(launches.launched_ns)
    over_a_bus = (events.category == Category.MEMCPY) & ~facts.trace.where_name(lambda name: "DtoD" in name)
    chosen = inside & ~over_a_bus[launches.work] & ~facts.device.collective
    operator = launches.operator[chosen]
    owner = facts.tree.nearest_ancestor(calls, include_self=True, of=operator.clip(min=0))
    return launches.work[chosen], np.where(operator >= 0, owner, NONE)


def _own(facts: Facts, calls: Bools) -> tuple[Rows, Rows]:
    rows = facts.measured_rows(calls)
    return rows, rows


def _own_ns(facts: Facts, calls: Bools) -> Int64s:
    """The time of each modelled call without those inside it."""
    own = np.where(calls, facts.tree.end_ns - facts.trace.events.start_ns, 0)
    rows = np.flatnonzero(calls)
    above = facts.tree.nearest_ancestor(calls, of=rows)
    inside = above >= 0
    np.subtract.at(own, above[inside], facts.trace.events.duration_ns[rows[inside]])
    return own.clip(min=0)


def composites_of(facts: Facts, name: str, like: str) -> tuple[Point, ...]:
    """Calls of an operator that calls others for its work, each with all kernels of these, as if it were ``like``."""
    rates = presumed_rates(facts)
    if rates is None or not facts.device.present or not facts.steps.measured_count:
        return ()
    events = facts.trace.events
    calls = facts.trace.named(name) & (events.category == Category.OPERATOR) & (events.dims_code >= 0)
    work, owner = _kernels(facts, calls)
    known = owner >= 0
    work, owner, per_step = work[known], owner[known], 1.0 / facts.steps.measured_count
    return _points(facts, rates, work, owner, events.duration_ns[work], per_step, like)


def _points(  # one for each kind of call
    facts: Facts, rates: Rates, work: Rows, owner: Rows, time_ns: Int64s, per_step: float, like: str = ""
) -> tuple[Point, ...]:
    if not work.size:
        return ()
    first, kind = _kinds(facts, owner)
    tensor_float = in_tf32(facts, work)
    taken_ns = np.bincount(kind, time_ns, len(first))
    order = np.argsort(kind, kind="stable")
    bounds = np.searchsorted(kind[order], np.arange(len(first) + 1))
    found = []
    for number in range(len(first)):
        mine = order[bounds[number] : bounds[number + 1]]
        rows = distinct(owner[mine])
        name, *texts = _texts(facts, int(rows[0]))
        call, demand = read_call(like or name, *texts), demand_of(like or name, *texts)
        if call is None or demand is None or not taken_ns[number]:
            continue
        tf32 = demand.kind in PRODUCTS and demand.type == "float32" and bool(tensor_float[mine].any())
        rate = "tf32" if tf32 and "tf32" in rates.products else demand.type
        if demand.operations and rate not in rates.products:
            continue
        if facts.device.present:
            possible = _possible(demand, rates, rate, taken_ns[number] / len(rows))
            if possible is None:
                continue
            demand = possible
        is_slow = demand.is_memory_bound(rates, rate)
        least_ns = demand.least_ns(rates, rate)
        count, step_ns = len(rows) * per_step, float(taken_ns[number]) * per_step
        found.append(Point(call, demand, rate, count, step_ns, least_ns, is_slow, rows, work[mine], owner[mine]))
    return tuple(sorted(found, key=lambda one: -one.step_ns))


def _possible(demand: Demand, rates: Rates, rate: str, each_ns: float) -> Demand | None:
    """What the call demands at least; None if no device does that in the time. Tokens that prefer some experts reach
    fewer of them than tokens that choose at random: then as many weights count as the memory could read meanwhile."""
    if not _is_impossible(demand, rates, rate, each_ns):
        return demand
    if not isinstance(demand, Experts):
        return None
    fewest = structs.replace(demand, read_bytes=demand.chosen * demand.weight_bytes)
    read_bytes = each_ns * rates.bandwidth / 1e9 - demand.written_bytes
    if _is_impossible(fewest, rates, rate, each_ns) or read_bytes < fewest.read_bytes:
        return None
    return structs.replace(demand, read_bytes=read_bytes)


def _is_impossible(demand: Demand, rates: Rates, rate: str, each_ns: float) -> bool:
    """Whether no device does that much in the time, so that the call demands less than its shapes say: they do not tell
    a sparse matrix, one tensor given twice, or a broadcast view, and a list of tensors may have a narrower type."""
    from_memory = demand.bytes > LARGEST_CACHE and demand.moving_ns(rates) > _BEYOND_MEMORY * each_ns
    return from_memory or demand.computing_ns(rates, rate) > _BEYOND_ARITHMETIC * each_ns
