"""What is left if no rule knows a fault: the places that take most of the step, what each does with its time, and how
much shorter the step would be without it.

A place is explained if it computes products at a good part of the device's peak rate, with other operators beside them
that move their data at a good part of the memory's, or if it updates the parameters: the recording then shows what the
time is for. Anything else may be necessary, but the recording does not show that. Operators alone that move data as
fast as the memory can may still move too much of it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from msgspec import Struct

from profkit.derive.device.kernel_families import Family, family_of_kernel
from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import MATRIX, base_name
from profkit.derive.operators.operators import TEXTS
from profkit.derive.timeline.intervals import Intervals, union
from profkit.findings.values import GOOD_RATE, WORTH_EXPLAINING, Activity, Doing, Peak
from profkit.patterns.kernel_names import short_kernel_name
from profkit.patterns.program import spent_ns
from profkit.patterns.ranks.blocked import blocked_time
from profkit.patterns.serving.replays import by_graphs
from profkit.patterns.time.divided import Divided, Gaps, divide_steps
from profkit.patterns.time.hottest import BACKWARD
from profkit.run.directory import Rates
from profkit.savings.cost_models.devices import rates_of
from profkit.savings.edits import Edit, combine, remove, shrink_spans, unblock
from profkit.savings.replay import replay
from profkit.savings.roofline.demand import PRODUCTS
from profkit.savings.roofline.launches import least_of_work, usual_of_work
from profkit.savings.roofline.models import demand_of
from profkit.trace.events import NONE, Bools, Category, Float64s, Int32s, Int64s, Rows
from profkit.trace.statistics import among, distinct_rows

MOST = 5
"""Places shown: more would not be read, unless they take much and are not explained."""
LEAST_SHARE = 0.02
"""A place with less is no place to begin."""
_EXPLAINED_SHARE = 0.75
"""Of the place's time: the rest is less than a twentieth of most steps."""
_SMALL_NS = 15_000
"""On the host: what the most expensive operator takes on tiny tensors while it is recorded (`pricing`)."""
_SMALL_KERNEL_NS = 5_000
"""Launching a kernel takes the host at least this long: a shorter one cannot keep a device busy."""
_LEAST_ACTIVITY = 0.1
"""Of the place's time: less is not worth a mention."""
_MOST_ACTIVITIES = 3
_MOSTLY = 0.5
_UNCERTAINTY = 0.0
"""It is a bound, and not what a fix gives back."""
_PRODUCT_PARTS = ("convolution", "scaled_dot_product", "flash_attention", "mkldnn_rnn", "_cudnn_rnn")
"""In the names of operators that compute products, forward or backward."""
_PRODUCT_KERNELS = PRODUCTS | {Family.RECURRENT}
"""Families of kernels that compute products, if no operator is known."""
_LEAST_RATE = 20e9
"""Floating-point operations per second of one thread: eight floats in a vector register, two operations each, at 1.25
GHz. Any processor with AVX2 reaches more in a large product."""
_MOST_RATE = 224e9
"""The same for 16 floats in a register, two units that multiply and add, and 3.5 GHz: no thread is faster."""
_LEAST_INTENSITY = 4.0
"""Operations per byte: of less, as of a weight matrix times a vector, the memory sets the pace and not the arithmetic.
A thread computes 20 to 224 GFLOP/s and streams about 5 to 20 GB/s, so that no processor balances below this."""
_BY_MATRICES = frozenset(("addmm", "addmv", "baddbmm", "bmm", "linear", "matmul", "mm", "mv"))
"""Products whose operations and bytes follow from two matrices: of these only the memory's rate can be missing."""
_COSTLY_KIND = 0.1
"""Of the time of all products: what runs for so long is timed well enough to be a yardstick."""
_TYPES = ("float32", "float64", "float16", "bfloat16")


class PlaceCost(Struct, frozen=True):
    """A place that takes much of the step. ``site`` is its call site, else ``code`` the code of its name."""

    fraction: float
    bound: float
    site: int
    code: int
    does: tuple[Doing, ...]
    is_explained: bool
    unjudged: str


def costliest_places(facts: Facts) -> tuple[PlaceCost, ...]:
    """The few places of the program that take most of the measured steps, what is at no known place among them."""
    divided = divide_steps(facts)
    places, taken_ns = divided.by_place()
    shares = taken_ns / divided.total_ns
    wanted = np.flatnonzero((shares >= LEAST_SHARE) & ((np.arange(len(shares)) < MOST) | (shares >= WORTH_EXPLAINING)))
    columns = Columns.of(facts, divided)
    found = [_cost_of(facts, divided, columns, int(places[at]), float(shares[at])) for at in wanted.tolist()]
    return tuple(one for number, one in enumerate(found) if number < MOST or not one.is_explained)


def _cost_of(facts: Facts, divided: Divided, columns: Columns, place: int, share: float) -> PlaceCost:
    # Without a device all of the host's time is one timeline, and nothing is hidden behind anything.
    bound = min(replay(facts, _without(facts, divided, place)).fraction, 1.0) if facts.device.present else share
    does = columns.activities(facts, place, divided.total_ns)
    is_explained = _explained(columns, place, does) >= _EXPLAINED_SHARE * share
    site, code = (place, NONE) if place < divided.lines else (NONE, place - divided.lines)
    shown = [one for one in does if one.fraction >= _LEAST_ACTIVITY * share][:_MOST_ACTIVITIES]
    unjudged = "" if is_explained else _why_unjudged(facts, does)
    return PlaceCost(share, bound, site, code if place >= 0 else NONE, tuple(shown), is_explained, unjudged)


def _explained(columns: Columns, place: int, does: list[Doing]) -> float:
    """The share of the step that the place visibly needs."""
    of = {
        one.activity: one.fraction
        for one in does
        if one.of_peak is None or one.of_peak >= columns.usual_rate(place, one.activity)
    }
    good = {one.activity for one in does if one.of_peak is not None}
    products = of.get(Activity.PRODUCTS, 0.0) if Activity.PRODUCTS in good else 0.0
    beside = of.get(Activity.OPERATORS, 0.0) if Activity.OPERATORS in good else 0.0
    return of.get(Activity.UPDATE, 0.0) + products + min(beside, products)


def _why_unjudged(facts: Facts, does: list[Doing]) -> str:
    """What the recording does not show of the activity that takes most; empty if it shows all."""
    most = does[0] if does else None
    if most is None or most.of_peak is not None:
        return ""
    if most.activity is Activity.PYTHON:
        return "nothing that PyTorch records runs there: Python, other libraries, or a wait"
    if most.activity not in (Activity.PRODUCTS, Activity.OPERATORS):
        return ""
    return _why_no_rate(facts, most)


def _why_no_rate(facts: Facts, doing: Doing) -> str:
    if not facts.operators.has_shapes:
        return "shapes were not recorded, so its rate is unknown"
    if rates_of(facts) is None and facts.device.present:
        return "the peak rates of this GPU are unknown"
    if rates_of(facts) is None and (doing.activity is Activity.OPERATORS or base_name(doing.name) in _BY_MATRICES):
        return (
            "the rate of this machine's memory was not measured (`profkit doctor` does so once, for later recordings)"
        )
    return f"how long {short_kernel_name(doing.name) or 'it'} takes at least is unknown"


def _without(facts: Facts, divided: Divided, place: int) -> Edit:
    """All that the place ran on host and device vanishes, and its waits with it."""
    host, gaps, device = divided.host, divided.gaps, divided.device
    rows = host.rows[host.place == place]
    mine = gaps.place == place
    share = np.bincount(gaps.of[mine], gaps.share[mine], len(gaps.start_ns))
    touched = np.flatnonzero(share > 0)
    start_ns, end_ns = gaps.start_ns[touched], gaps.end_ns[touched]
    length_ns = end_ns - start_ns - facts.disturbance.covered_within(start_ns, end_ns)
    kept_ns = ((1 - share[touched].clip(0, 1)) * length_ns).astype(np.int64)
    work = device.rows[device.place == place]
    waits = facts.waits.rows[facts.tree.under(facts.trace.mask_of(rows))[facts.waits.rows]]
    return combine(
        [
            remove(rows, work, _UNCERTAINTY),
            shrink_spans(start_ns, end_ns, kept_ns, _UNCERTAINTY),
            unblock(waits, _UNCERTAINTY),
        ]
    )


class Columns(Struct, frozen=True):
    """The parts of the steps' time, in columns: the place, the activity's number, the time, the code of the operator's
    or kernel's name (`NONE` without one), how long the part takes at the device's peak (NaN if unknown), and the share
    of the peak that such work reaches with nothing wrong."""

    place: Int64s
    activity: Int64s
    time_ns: Float64s
    name_code: Int64s
    least_ns: Float64s
    usual: Float64s

    @classmethod
    def of(cls, facts: Facts, divided: Divided) -> Columns:
        parts = [*_host_parts(facts, divided), _device_parts(facts, divided), _gap_parts(facts, divided)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__struct_fields__))

    def activities(self, facts: Facts, place: int, total_ns: float) -> list[Doing]:
        """What one place does, the most first."""
        mine, found = np.flatnonzero(self.place == place), []
        for number, activity in enumerate(Activity):
            rows = mine[(self.activity[mine] == number) & (self.time_ns[mine] > 0)]
            if not rows.size:
                continue
            time_ns, codes = self.time_ns[rows], self.name_code[rows]
            named, least_ns = codes >= 0, self.least_ns[rows]
            most = int(np.bincount(codes[named], time_ns[named]).argmax()) if named.any() else NONE
            known = ~np.isnan(least_ns)
            is_known = time_ns[known].sum() >= _MOSTLY * time_ns.sum()
            rate = float(min(least_ns[known].sum() / max(time_ns[known].sum(), 1.0), 1.0)) if is_known else None
            name = "" if most == NONE else facts.trace.names[most].removeprefix(BACKWARD)
            count = round(int(named.sum()) / facts.steps.measured_count)
            origin = None if rate is None else _peak_from(facts)
            found.append(Doing(activity, float(time_ns.sum()) / total_ns, name, count, rate, origin))
        return sorted(found, key=lambda one: -one.fraction)

    def usual_rate(self, place: int, activity: Activity) -> float:
        """What the work of one activity at a place reaches together with nothing wrong."""
        mine = (self.place == place) & (self.activity == _NUMBER[activity]) & ~np.isnan(self.least_ns)
        time_ns = self.time_ns[mine]
        return float((self.usual[mine] * time_ns).sum() / time_ns.sum()) if time_ns.sum() > 0 else GOOD_RATE


_NUMBER = {activity: number for number, activity in enumerate(Activity)}


def _host_parts(facts: Facts, divided: Divided) -> list[Columns]:
    """Operators on the host: the products in each, and the rest of it."""
    host, names = divided.host, facts.trace.events.name_code
    rows, time_ns = host.rows, host.time_ns
    if facts.device.present:  # the host only launches, and a device has nothing to do meanwhile
        activity = np.full(len(rows), _NUMBER[Activity.LAUNCHING])
        activity[facts.tree.holding(facts.trace.mask_of(facts.waits.rows))[rows]] = _NUMBER[Activity.WAITING]
        unknown = np.full(len(rows), np.nan)
        return [Columns(host.place, activity, time_ns, names[rows].astype(np.int64), unknown, _good(len(rows)))]
    product_ns, least_ns = _products(facts, spent_ns(facts, np.arange(len(names))).astype(np.float64), _peaks(facts))
    whole_ns = np.maximum(time_ns, 1.0)
    inside_ns = np.minimum(facts.tree.total_under(product_ns.astype(np.int64))[rows], whole_ns)
    unknown = facts.tree.holding(np.isnan(least_ns) & (product_ns > 0))[rows]
    least = facts.tree.total_under(np.nan_to_num(least_ns).astype(np.int64))[rows].astype(np.float64)
    is_small = time_ns <= _SMALL_NS
    inside_ns = np.where(is_small | facts.updates.inside[rows], 0.0, inside_ns)
    rest = np.full(len(rows), _NUMBER[Activity.OPERATORS])
    rest[is_small] = _NUMBER[Activity.SMALL]
    waiting = _waiting(facts)
    rest[waiting.covered_within(facts.trace.events.start_ns[rows], facts.tree.end_ns[rows]) > _MOSTLY * whole_ns] = (
        _NUMBER[Activity.EXCHANGE]
    )
    rest[facts.updates.inside[rows]] = _NUMBER[Activity.UPDATE]
    code = names[rows].astype(np.int64)
    moved_ns = _moving_ns(facts, rows)
    products, good = np.full(len(rows), _NUMBER[Activity.PRODUCTS]), _good(len(rows))
    moved_ns = np.where(rest == _NUMBER[Activity.OPERATORS], moved_ns, np.nan)
    return [
        Columns(host.place, products, inside_ns, code, np.where(unknown, np.nan, least), good),
        Columns(host.place, rest, time_ns - inside_ns, code, moved_ns, good),
    ]


def _good(count: int) -> Float64s:
    return np.full(count, GOOD_RATE)


def _device_parts(facts: Facts, divided: Divided) -> Columns:
    """The device's work. A kernel that is part of a product has its share of what the product takes at least. A graph
    replays the kernels of many operators, and the one that launches it says nothing of them."""
    device, launches, events = divided.device, facts.launches, facts.trace.events
    operator, launching = np.full((2, len(events)), NONE, dtype=np.int64)
    launching[launches.work] = launches.operator
    operator[launches.work] = np.where(by_graphs(facts), NONE, launches.operator)
    of_work, launched_by, rows = operator[device.rows], launching[device.rows], device.rows
    activity = np.full(len(rows), _NUMBER[Activity.OPERATORS])
    activity[device.time_ns <= _SMALL_KERNEL_NS] = _NUMBER[Activity.SMALL]
    taken_ns = np.zeros(len(events))
    np.add.at(taken_ns, of_work[of_work >= 0], device.time_ns[of_work >= 0])
    carried_ns = facts.tree.total_under(taken_ns.astype(np.int64)).astype(np.float64)
    product_ns, _ = _products(facts, carried_ns, None)
    carrier = facts.tree.nearest_ancestor(product_ns > 0, include_self=True, of=of_work.clip(min=0))
    in_product = (of_work >= 0) & (carrier >= 0)
    by_name = facts.trace.where_name(lambda name: family_of_kernel(name) in _PRODUCT_KERNELS)[rows]
    activity[in_product & (device.time_ns > _SMALL_KERNEL_NS)] = _NUMBER[Activity.PRODUCTS]
    activity[(of_work < 0) & by_name & (device.time_ns > _SMALL_KERNEL_NS)] = _NUMBER[Activity.PRODUCTS]
    alone = ~in_product & (of_work >= 0)
    moved_ns = _moving_ns(facts, of_work.clip(min=0)) * device.time_ns / np.maximum(taken_ns[of_work.clip(min=0)], 1.0)
    least = least_of_work(facts)[rows] * device.time_ns / np.maximum(events.duration_ns[rows], 1)
    least = np.where(alone & np.isnan(least), moved_ns, least)
    activity[facts.updates.inside[launched_by.clip(min=0)] & (launched_by >= 0)] = _NUMBER[Activity.UPDATE]
    activity[(events.category[rows] == Category.MEMCPY)] = _NUMBER[Activity.COPIES]
    collective = np.zeros(len(events), dtype=bool)
    collective[launches.work] = facts.device.collective
    activity[collective[rows]] = _NUMBER[Activity.EXCHANGE]
    code = np.where(of_work >= 0, events.name_code[of_work.clip(min=0)], events.name_code[rows]).astype(np.int64)
    return Columns(device.place, activity, device.time_ns, code, least, usual_of_work(facts)[rows])


def _gap_parts(facts: Facts, divided: Divided) -> Columns:
    """What passes between operators: waits for a batch or for other ranks, the optimizer's own Python, or anything."""
    gaps, events, tree = divided.gaps, facts.trace.events, facts.tree
    length_ns = gaps.end_ns - gaps.start_ns
    loading = facts.loading & (events.lane == facts.steps.main_lane)
    activity = np.full(len(length_ns), _NUMBER[Activity.PYTHON])
    activity[gaps.in_backward & (length_ns <= _SMALL_NS)] = _NUMBER[Activity.SMALL]
    # An update that the device waits for is not its work, however much there is to launch.
    update = Activity.LAUNCHING if facts.device.present else Activity.UPDATE
    parts = (
        (update, facts.updates.on(np.ones(len(events), dtype=bool))),
        (Activity.LOADING, union(events.start_ns[loading], tree.end_ns[loading])),
        (Activity.EXCHANGE, _waiting(facts)),
        (Activity.OPERATORS, _compiled(facts)),
    )
    for which, when in parts:
        activity[when.covered_within(gaps.start_ns, gaps.end_ns) > _MOSTLY * length_ns] = _NUMBER[which]
    of = gaps.of
    activity = activity[of]
    if divided.lines:
        # A line of the dataset makes a batch, and one asks for it. What borders on an optimizer's step is the update.
        asks = among(gaps.place, facts.lines.site[np.flatnonzero(loading & facts.measured)].astype(np.int64))
        activity[(activity == _NUMBER[Activity.LOADING]) & ~asks] = _NUMBER[Activity.PYTHON]
        updates = facts.lines.site[facts.updates.rows].astype(np.int64)
        borders = _border_on_updates(facts, gaps)[of] & among(gaps.place, updates)
        activity[borders & (activity == _NUMBER[Activity.PYTHON])] = _NUMBER[update]
    nothing = np.full(len(of), NONE, dtype=np.int64)
    return Columns(gaps.place, activity, gaps.parts_ns(), nothing, np.full(len(of), np.nan), _good(len(of)))


def _border_on_updates(facts: Facts, gaps: Gaps) -> Bools:
    """Gaps in which an optimizer's step begins or ends, or that lie at either. A line may do more than call it: the
    whole of a training step fits on one."""
    inside = np.zeros(len(gaps.start_ns), dtype=bool)
    for edges_ns in (np.sort(facts.updates.start_ns), np.sort(facts.updates.end_ns)):
        first, last = np.searchsorted(edges_ns, gaps.start_ns), np.searchsorted(edges_ns, gaps.end_ns, side="right")
        inside |= last > first
    return inside


def _compiled(facts: Facts) -> Intervals:
    rows = np.flatnonzero(facts.trace.events.category == Category.COMPILED_CODE)
    return union(facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def _waiting(facts: Facts) -> Intervals:
    """When the host stood still for other ranks."""
    return union(*blocked_time(facts))


def _products(facts: Facts, time_ns: Float64s, peaks: Rates | None) -> tuple[Float64s, Float64s]:
    """Columns over all events: for the innermost operators whose work is products, their time, and how long it takes at
    the device's peak (NaN if that is unknown). 0 for all others."""
    trace, events = facts.trace, facts.trace.events
    named = trace.where_name(_is_product) & (events.category == Category.OPERATOR)
    rows = np.flatnonzero(named)
    product_ns, least_ns = np.zeros(len(events)), np.zeros(len(events))
    if not rows.size:
        return product_ns, least_ns
    columns = (events.name_code[rows], events.dims_code[rows], events.types_code[rows], events.concrete_code[rows])
    first, kind = distinct_rows(*columns)
    known = np.array([_least_ns(facts, int(row), peaks) for row in rows[first]], dtype=np.float64)[kind]
    # The outermost operator that has a model stands for all inside it, and without one the outermost of all.
    modelled = trace.mask_of(rows[~np.isnan(known)])
    chosen = facts.tree.outermost(modelled)
    others = named & ~facts.tree.under(chosen) & ~facts.tree.holding(chosen)
    chosen |= facts.tree.outermost(others)
    mine = chosen[rows]
    product_ns[rows[mine]], least_ns[rows[mine]] = time_ns[rows[mine]], known[mine]
    return product_ns, least_ns


@derived_once
def _peaks(facts: Facts) -> Rates | None:
    """The peak rates of the device. If nobody measured those of a processor, the rate of the program's own fastest
    product is the peak, or what any processor reaches if that is more; its memory's rate then stays unknown."""
    rates = rates_of(facts)
    if rates is not None or facts.device.present or not facts.operators.has_shapes:
        return rates
    threads = facts.run.host.torch_threads if facts.run.host is not None else 1
    unit = Rates("", 1e18, dict.fromkeys(_TYPES, 1e9))  # one operation per nanosecond
    taken_ns = np.where(facts.measured, spent_ns(facts, np.arange(len(facts.trace.events))), 0).astype(np.float64)
    product_ns, operations = _products(facts, taken_ns, unit)
    rows = np.flatnonzero((product_ns > _SMALL_NS) & ~np.isnan(operations))
    fastest = (
        _fastest_kind(product_ns[rows], operations[rows], facts.trace.events.name_code[rows]) if rows.size else 0.0
    )
    rate = min(max(fastest, threads * _LEAST_RATE), threads * _MOST_RATE)
    return Rates("", math.inf, dict.fromkeys(_TYPES, rate))


def _fastest_kind(taken_ns: Float64s, operations: Float64s, name_code: Int32s) -> float:
    """The most operations per second of any kind of product that takes a good part of their time: a short one may have
    been timed badly."""
    _, kind = distinct_rows(name_code, operations.astype(np.int64))
    time_ns, count = np.bincount(kind, taken_ns), np.bincount(kind, operations)
    costly = time_ns >= _COSTLY_KIND * time_ns.sum()
    return float((count[costly] / time_ns[costly]).max(initial=0.0)) * 1e9


def _peak_from(facts: Facts) -> Peak:
    rates = rates_of(facts)
    if rates is None:
        return Peak.OWN
    return Peak.MEASURED if rates is facts.run.rates else Peak.DATA_SHEET


@lru_cache(TEXTS)
def _is_product(name: str) -> bool:
    plain = base_name(name)
    return plain in MATRIX or any(part in plain for part in _PRODUCT_PARTS)


def _least_ns(facts: Facts, row: int, rates: Rates | None) -> float:
    """How long one product takes at the device's peak; NaN if unknown."""
    trace, events = facts.trace, facts.trace.events
    dims, types, values = (
        trace.text_of(int(column[row])) for column in (events.dims_code, events.types_code, events.concrete_code)
    )
    demand = demand_of(trace.name_of(row), dims, types, values)
    if rates is None or demand is None or not demand.operations or demand.type not in rates.products:
        return np.nan
    if math.isinf(rates.bandwidth) and demand.operations < _LEAST_INTENSITY * demand.bytes:
        return np.nan
    return demand.least_ns(rates, demand.type)


def _moving_ns(facts: Facts, rows: Rows) -> Float64s:
    """How long the device's memory takes for what these operators read and make; NaN if unknown."""
    rates = rates_of(facts)
    if rates is None or not facts.operators.has_shapes:
        return np.full(len(rows), np.nan)
    moved = facts.operators.input_bytes[rows] + facts.allocated_bytes[rows]
    return np.where(moved > 0, moved / rates.bandwidth * 1e9, np.nan)
