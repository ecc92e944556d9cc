"""How long a step with a larger batch would take: what grows with the batch, and what stays as it is.

The host: of an operator whose inputs have a dimension that is a multiple of the batch, arithmetic and moved bytes grow.
They are taken at the best rates that the recording itself shows. What is left of its time is the price of a call, up to
a limit; beyond that it grows, too. Everything else stays: Python, launches, the optimizer, gradients of parameters that
are stored or averaged. A product of two matrices also lays out and reads one without a batch, or adds up its gradient:
of its time only the arithmetic grows. A batch that the main process makes grows by its samples.

A device: a kernel below half of its roofline (`profkit.savings.roofline`) does not fill the device. It stays as long as
it is until it would reach that half, and then grows; one whose roofline is unknown grows. The step takes as long as the
slower of host and device, or as workers need for a batch.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import ELEMENTWISE, VIEW, operators_of
from profkit.derive.operators.operators import parse_dims
from profkit.derive.steps.crowding import crowding_by_step
from profkit.patterns.loader_accounts import loader_accounts
from profkit.patterns.program import ACCUMULATES
from profkit.run.directory import unprofiled_steps
from profkit.savings.cost_models.devices import rates_of
from profkit.savings.cost_models.roofline import product_of
from profkit.savings.roofline.launches import least_of_work, usual_of_work
from profkit.savings.step_time import step_time
from profkit.trace.events import Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import distinct_rows, median

_MOST_CALL_NS = 20_000
"""An operator costs the host 5 to 20 µs whatever its size, here in C++ and without the recording's part."""
_MOST_CALLS_NS = {"aten::mkldnn_convolution": 40_000, "aten::convolution_backward": 90_000}
"""oneDNN lays out image, weight and result anew in each call. Fits over batches of 1 to 8 on one core of an EPYC leave
35 to 50 µs and 75 to 100 µs for batches of none: 8 to 64 channels, images of 8 x 8 to 16 x 16, with groups and without.
PyTorch's own convolutions are other operators, and cost no more than the rest."""
_USUAL_RATE, _LEAST_BANDWIDTH = 80e9, 10e9
"""For recordings whose products are all tiny or of few rows, whose best rate tells no more than the price of a call or
of reading a matrix: most of the 96e9 floating-point operations per second that a core with AVX2 does at 3 GHz (two
fused multiply-adds of eight numbers each cycle), and bytes per second that any core does."""
_HELD_UP = 0.25
"""Of the step: if operators took so much longer than others of their name and shapes, or the thread waited so long for
a CPU, then what the clock says of most of them is another program's time."""
_FULL = 0.5
"""Of the roofline: kernels that do well reach half of it or more, and have no room for a larger batch."""
_MOST_TIMES = 64
"""Larger batches are another training."""
_PAYS = 0.1
"""More samples a second for twice the batch; less is within what steps differ by."""


class LargerBatch(Struct, frozen=True):
    """A step with the present batch of ``size`` samples takes ``step_ns``, of which ``growing_ns`` would be twice as
    long with twice the batch. The functions tell of a batch that is so many times as large."""

    size: int
    step_ns: int
    growing_ns: int
    host_ns: float
    device_ns: Float64s
    device_used: Float64s
    fixed_ns: float
    device_fixed_ns: float
    making_ns: float

    def step_of(self, times: float) -> float:
        """Nanoseconds."""
        host_ns = self.fixed_ns + self.host_ns * times
        grown = np.clip(times * self.device_used / _FULL, 1.0, times)
        device_ns = self.device_fixed_ns + float((self.device_ns * grown).sum())
        return max(host_ns, device_ns, self.making_ns * times)

    def gain(self, times: float) -> float:
        """How many times as many samples a second."""
        return times * self.step_of(1) / self.step_of(times)

    @property
    def pays_until(self) -> int:
        """The power of two from which on twice the batch gives hardly more samples a second."""
        times = 1
        while times < _MOST_TIMES and self.gain(2 * times) >= (1 + _PAYS) * self.gain(times):
            times *= 2
        return times


@derived_once
def larger_batch(facts: Facts) -> LargerBatch | None:
    """None if the size of the batch or the shapes are not known, or if operators were held up too much to tell."""
    sizes = [(use.asked_ns, use.batch_size) for use in facts.run.loaders if use.batch_size]
    if not sizes or not facts.operators.has_shapes or facts.is_part:
        return None
    size = max(sizes)[1] or 1
    rows = _operators(facts)
    rows = rows[_has_batch(facts, rows, size)]
    time = step_time(facts)
    step_ns = min(time.ns, time.recorded_ns)  # a recording makes no step faster: the machine was busy
    loading_ns = _loading_ns(facts) * step_ns / max(time.recorded_ns, 1)
    if facts.device.present:
        return _on_device(facts, size, rows, loading_ns)
    took: Float64s = facts.tree.self_ns(facts.trace.events)[rows].astype(np.float64)
    crowded_ns = facts.once(_crowded_ns)
    held_up_ns = _per_step(facts, rows, took - usual_ns(facts, rows, took))
    if max(held_up_ns, float(median(crowded_ns)) if len(crowded_ns) else 0.0) > _HELD_UP * step_ns:
        if not len(crowded_ns) or _computes_together(facts):
            return None
        step_ns, loading_ns = _alone_ns(facts, step_ns, crowded_ns), _loading_ns(facts, least=True)
        took = usual_ns(facts, rows, took, least=True)
    grow_ns = min(_per_step(facts, rows, _growing_ns(facts, rows, took)) + loading_ns, step_ns)
    none = np.zeros(0)
    return LargerBatch(size, step_ns, int(grow_ns), grow_ns, none, none, step_ns - grow_ns, 0.0, _making_ns(facts))


def _per_step(facts: Facts, rows: Rows, times_ns: Float64s) -> float:
    """The median over the measured steps of the time of these events within each."""
    return float(median(_sums(facts, rows, times_ns)))


def _sums(facts: Facts, rows: Rows, times_ns: Float64s) -> Float64s:
    """The time of these events within each measured step."""
    sums = np.bincount(facts.step_of(rows), times_ns, minlength=len(facts.steps))
    measured: Float64s = sums[facts.steps.measured].astype(np.float64)
    return measured


def _crowded_ns(facts: Facts) -> Int64s:
    """How long the program waited for a CPU in each measured step; empty if that was not counted."""
    counted = crowding_by_step(facts.steps, facts.run)
    return np.zeros(0, dtype=np.int64) if counted is None else counted[facts.steps.measured].astype(np.int64)


def _alone_ns(facts: Facts, step_ns: int, crowded_ns: Int64s) -> int:
    """The step without other programs: the shortest measured one without its waits for a CPU, or the shortest without
    the recording."""
    recorded_ns = facts.steps.duration_ns[facts.steps.measured] - crowded_ns
    return max(1, min(step_ns, int(recorded_ns.min()), *unprofiled_steps(facts.run, None)[0]))


def _computes_together(facts: Facts) -> bool:
    """Whether several threads compute an operator: they wait for the one that has no CPU, and nobody counts that."""
    host, set_now = facts.run.host, facts.run.flags.get("torch_threads")
    return (set_now if isinstance(set_now, int) else host.torch_threads if host else 0) != 1


def usual_ns(facts: Facts, rows: Rows, times_ns: Float64s, least: bool = False) -> Float64s:
    """For each operator the median time of all with its name and shapes, or the ``least``: other programs hold single
    ones up."""
    if not len(rows):
        return times_ns
    events = facts.trace.events
    _, kind = distinct_rows(events.name_code[rows], events.dims_code[rows])
    order, count = np.lexsort((times_ns, kind)), np.bincount(kind)
    middle = np.cumsum(count) - count + (0 if least else (count - 1) // 2)
    usual: Float64s = np.minimum(times_ns, times_ns[order][middle][kind])
    return usual


def _growing_ns(facts: Facts, rows: Rows, took: Float64s) -> Float64s:
    """The part of each operator's own time that grows with the batch."""
    operations, has_fixed = _products(facts, rows)
    moved = facts.operators.input_bytes[rows].astype(np.float64)
    at = took > facts.trace.events.duration_ns[rows] / 2  # others call one that does the work
    plain = at & (operations == 0) & operators_of(facts.trace, ELEMENTWISE)[rows]
    rate = max(_USUAL_RATE, float((operations[at] / took[at]).max(initial=0.0)) * 1e9)
    bandwidth = max(_LEAST_BANDWIDTH, float((moved[plain] / took[plain]).max(initial=0.0)) * 1e9)
    needs = np.where(at, np.where(operations > 0, operations / rate, moved / bandwidth) * 1e9, 0.0)
    growing = np.clip(np.maximum(needs, took - _calls_ns(facts, rows, took)), 0.0, took)
    growing[operators_of(facts.trace, VIEW)[rows]] = 0.0
    return np.where(at & has_fixed, np.minimum(growing, needs), growing)


def _calls_ns(facts: Facts, rows: Rows, took: Float64s) -> Float64s:
    """The price of each operator's call: no more than what the cheapest call of its name takes."""
    names = facts.trace.events.name_code[rows]
    cheapest = np.full(len(facts.trace.names), float(_MOST_CALL_NS))
    np.minimum.at(cheapest, names, usual_ns(facts, rows, took))
    calls_ns: Float64s = cheapest[names]
    for name, most_ns in _MOST_CALLS_NS.items():
        calls_ns[facts.trace.named(name)[rows]] = most_ns
    return calls_ns


def _on_device(facts: Facts, size: int, growing: Rows, loading_ns: float) -> LargerBatch | None:
    """With a device the host only launches, so of its time just the making of batches grows."""
    events, launches, time = facts.trace.events, facts.launches, step_time(facts)
    if rates_of(facts) is None or time.device_ns is None:
        return None
    inside = facts.steps.in_measured(launches.launched_ns)
    work, operator = launches.work[inside], launches.operator[inside]
    grows = (operator >= 0) & facts.trace.mask_of(growing)[operator]
    part = grows | (events.category[work] == Category.MEMCPY)
    took = events.duration_ns[work].astype(np.float64)
    used = np.ones(len(work))
    known = grows & ~np.isnan(least_of_work(facts)[work])
    reached = least_of_work(facts)[work[known]] / np.maximum(took[known], 1)
    used[known] = np.clip(reached * _FULL / usual_of_work(facts)[work[known]], 0.0, 1.0)
    took *= time.device_ns / max(float(took.sum()), 1.0)
    growing_ns = float(took[part & (used >= _FULL)].sum()) + loading_ns
    fixed = time.ns - loading_ns, float(took[~part].sum())
    device = took[part], used[part]
    return LargerBatch(size, time.ns, int(growing_ns), loading_ns, *device, *fixed, _making_ns(facts))


def _operators(facts: Facts) -> Rows:
    """Operators of the host in the measured steps, without the optimizer's, those of a loader, and gradients that are
    stored."""
    events = facts.trace.events
    operators = events.category == Category.OPERATOR
    left_out = facts.updates.inside | facts.tree.under(facts.loading | facts.trace.named(ACCUMULATES))
    return np.flatnonzero(operators & facts.measured & facts.serial_lanes[events.lane] & ~left_out)


def _has_batch(facts: Facts, rows: Rows, size: int) -> Bools:
    """Which operators take a tensor with a dimension that is a multiple of the batch."""
    codes = facts.trace.events.dims_code[rows]
    kinds, inverse = np.unique(codes, return_inverse=True)
    known = [
        any(extent and extent % size == 0 for shape in parse_dims(facts.trace.text_of(code)) for extent in shape)
        for code in kinds.tolist()
    ]
    return np.array(known, dtype=bool)[inverse] if len(rows) else np.zeros(0, dtype=bool)


def _products(facts: Facts, rows: Rows) -> tuple[Float64s, Bools]:
    """The operations of each product of matrices, 0 for other operators; and which are products of two matrices, one of
    them without a batch."""
    events = facts.trace.events
    first, kind = distinct_rows(events.name_code[rows], events.dims_code[rows])
    names = (facts.trace.names[code] for code in events.name_code[rows[first]].tolist())
    products = [product_of(name, _dims(facts, row)) for name, row in zip(names, rows[first].tolist(), strict=True)]
    operations = np.array([0.0 if product is None else product.operations for product in products])
    single = np.array([product is not None and product.batch == 1 for product in products], dtype=bool)
    return operations[kind], single[kind]


def _dims(facts: Facts, row: int) -> str:
    return facts.trace.text_of(int(facts.trace.events.dims_code[row]))


def _loading_ns(facts: Facts, least: bool = False) -> float:
    """The time in which the main process makes samples, but for the price of a call, in a usual step or the one where
    it took ``least``. 0 with workers, which make them meanwhile."""
    if any(use.workers for use in facts.run.loaders):
        return 0.0
    rows = facts.measured_rows(facts.loading & (facts.trace.events.lane == facts.steps.main_lane))
    took = (facts.trace.events.duration_ns[rows] - _MOST_CALL_NS).clip(0).astype(np.float64)
    return float(_sums(facts, rows, took).min()) if least else _per_step(facts, rows, took)


def _making_ns(facts: Facts) -> float:
    """The time that the workers of the slowest loader together need for a batch; 0 if there are none."""
    return max(
        (loader.batch_ns / len(loader.workers) for loader in loader_accounts(facts) if loader.workers), default=0.0
    )
