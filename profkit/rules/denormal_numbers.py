"""Numbers that have decayed to nearly zero make arithmetic on the CPU many times slower.

What it detects
Tensors on the CPU with denormal numbers: below 1.2e-38 in float32, or 2.2e-308 in float64, and not zero. Looked at is
what the program's objects hold when the recording begins, such as states, weights and moments of an optimizer, and what
the calls of one step take. A program that ends no step is looked at again and again, and recorded anew once they cost
more. What they cost on this machine is measured with the tensors' own numbers. So nothing is found where they are
flushed to zero, where they cost nothing, or where they are too few. The recorded arithmetic on tensors of that shape
must be slow, too. Half types and tensors on a device are not looked at.

Why is this bad?
Many processors compute with denormal numbers in microcode: 150 cycles instead of one for each vector that holds one.
What is multiplied by a decay in each step becomes denormal and stays so, as rounding keeps it from reaching zero. So do
traces of neurons, momentum of weights without gradients, tails of filters, and averages.

Example
    trace.mul_(0.95).add_(spikes)    # where no spike comes, the trace never reaches zero

Use instead
    torch.set_flush_denormal(True)   # once, before anything else is computed
    trace.mul_(0.95).add_(spikes)

How the saving is estimated
Each operator on such a tensor takes as much less as multiplying its numbers did with ones for the denormal ones, and at
most as many nanoseconds less as all of them took longer. One that took less than 0.9 of those is left alone. Functions
and products of matrices may save more. On an Intel CPU, float32, one thread, multiplying took 27 times as long,
`addcmul` 62 times, and a product of matrices 100 to 190 times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from profkit.derive.families import FUNCTIONS, MATRIX, base_name, operators_of
from profkit.patterns import Call, Places, by_call, costliest_lines, each_step, spent_ns, times_per_step
from profkit.patterns.step_calls import first_seen
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_share,
    rule,
)
from profkit.run.directory import DenormalTensors
from profkit.savings import take_less
from profkit.savings.cost_models.roofline import work_of
from profkit.trace import Float64s, Rows

_ONE_PRODUCT = frozenset(
    ("add", "div", "divide", "lerp", "mul", "multiply", "reciprocal", "rsub", "sub", "subtract", "true_divide")
)
_TWO_PRODUCTS = frozenset(("addcdiv", "addcmul", "addr"))
"""For each number; to add a multiple is one. What copies, compares, or adds up numbers is not slowed down."""
_OF_FUNCTION = 1.5
"""`exp` and `sqrt` took 1.6 times as much longer as a product did, `tanh` three times."""
_LEAST_OF_LONGER, _OF_MATRICES = 0.9, 0.2
"""An operator counts if it took this share of what its products should have taken longer. Pointwise ones took 0.94 and
more, products of matrices from 0.27 on. With half, operators in cold caches counted that had other numbers."""
_SPLIT_FROM = 1 << 15
"""Numbers from which on PyTorch's pointwise operators compute in several threads (``at::internal::GRAIN_SIZE``)."""
_UNCERTAINTY = 0.3
"""Between two looks at the tensors their numbers change, and operators differ."""
_NOT_LOOKED_AT = "what numbers tensors hold was not read (run a program with steps, or a longer one, under profkit)"
_FIX = (
    "Call `torch.set_flush_denormal(True)` where the program starts, before anything runs in several threads. It holds "
    "for the thread that calls it and for those that it starts later. Numbers below {tiny} then count as zero. Where "
    "it returns False, set what is tiny to zero now and then: `x[x.abs() < 1e-30] = 0`."
)
_TINY = {"float": "1.2e-38", "double": "2.2e-308"}


class _Slowed(NamedTuple):
    """The share of its time that an operator would take, how many nanoseconds less at most, and the time from which on
    it counts as slow."""

    kept: float
    longer_ns: float
    least_ns: float


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def denormal_numbers(facts: Facts) -> Suspicions:
    """One finding for the program, at the line that loses most."""
    if facts.run.denormals is None:
        raise CannotLook(_NOT_LOOKED_AT)
    if not facts.run.denormals:
        return
    rows = _arithmetic(facts)
    kept = _kept(facts, rows, facts.run.denormals)
    rows, kept = rows[kept < 1], kept[kept < 1]
    if rows.size:
        yield _suspect(facts, rows, kept)


def _arithmetic(facts: Facts) -> Rows:
    """The measured steps' operators, on any thread, that denormal numbers may slow down."""
    paid = operators_of(facts.trace, _ONE_PRODUCT, _TWO_PRODUCTS, FUNCTIONS, MATRIX)
    return facts.measured_rows(facts.tree.outermost(paid))


def _kept(facts: Facts, rows: Rows, tensors: Sequence[DenormalTensors]) -> Float64s:
    """The share of its time that each operator keeps: 1 for those that are not slowed down."""
    known = {(one.shape, one.type): one for one in tensors}
    threads, host = facts.run.flags.get("torch_threads"), facts.run.host
    count = int(threads or (host.torch_threads if host else 1))
    told = by_call(facts, first_seen(facts, rows), lambda call: _slowed(call, known, count), of=np.float64)
    ratio, longer_ns, least_ns = told.reshape(-1, 3).T
    spent = np.maximum(spent_ns(facts, rows), 1)
    return np.where(spent >= least_ns, np.maximum(ratio, 1 - longer_ns / spent), 1.0)


def _slowed(call: Call, known: Mapping[tuple[tuple[int, ...], str], DenormalTensors], threads: int) -> _Slowed:
    """What the worst of its inputs does to a call."""
    inputs = {(tuple(shape), kind) for shape, kind in zip(call.shapes, call.types, strict=False)}
    found = [_slowed_by(known[one], call, threads) for one in inputs & set(known)]
    return max(found, key=lambda one: one.longer_ns, default=_Slowed(1.0, 0.0, math.inf))


def _slowed_by(tensor: DenormalTensors, call: Call, threads: int) -> _Slowed:
    numbers, name = math.prod(tensor.shape), base_name(call.name)
    is_product = name in MATRIX
    if is_product:
        work = work_of(call.name, call.dims, call.values)
        products, busy = (max(numbers, work.operations / 2) if work else numbers), threads
    else:
        products = numbers * (1 if name in _ONE_PRODUCT else 2 if name in _TWO_PRODUCTS else _OF_FUNCTION)
        busy = max(1, min(threads, numbers // _SPLIT_FROM))
    longer_ns = products * (tensor.slow_ns - tensor.usual_ns) / busy
    least_ns = longer_ns * (_OF_MATRICES if is_product else _LEAST_OF_LONGER)
    return _Slowed(tensor.usual_ns / tensor.slow_ns, longer_ns, least_ns)


def _suspect(facts: Facts, rows: Rows, kept: Float64s) -> Suspicion:
    worst = max(facts.run.denormals or (), key=lambda one: (one.slow_ns - one.usual_ns) * math.prod(one.shape))
    count = times_per_step(facts, rows)
    shape, times = " x ".join(f"{length:,}" for length in worst.shape), worst.slow_ns / worst.usual_ns
    return Suspicion(
        message=f"{each_step(count, 'operator', 'computes', 'compute')} with denormal numbers, nearly zero but not "
        f"zero: {format_share(worst.share)} of those in a tensor of {shape}. Multiplying it takes {times:.3g} times as "
        "long.",
        fix=_FIX.format(tiny=_TINY[worst.type]),
        rows=rows,
        edit=take_less(facts, rows, kept, _UNCERTAINTY),
        worth=LOW_FROM,
        confidence=0.8,
        count=count,
        places=Places.of(costliest_lines(facts, rows).all()),
        evidence={"denormal_share": round(worst.share, 4), "times_as_long": round(times, 1)},
    )
