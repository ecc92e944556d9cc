"""Products of matrices multiply all 24 bits of a float32, where the device is faster with fewer.

What it detects
Matrix products and convolutions of float32 tensors that take a tenth of the step or more. On a GPU with TF32: those
whose kernels do not use it although a setting could allow it, and, as a second opportunity, what bfloat16 gives beyond
that. On a GPU whose tensor cores know float16 alone (V100, T4): what float16 gives. Each has to shorten the step, or
what TF32 leaves of it, by a twentieth. On a CPU with bfloat16 instructions: all that do not run under `autocast`. Small
products do not count. It is an opportunity because results change: TF32 and float16 keep 11 of the 24 bits of each
factor, bfloat16 keeps 8; sums are still float32. Whether TF32 is allowed is read from the program's settings or, in
other recordings, from the names of the other kernels.

Why is this bad?
A GPU's units for whole tiles and a CPU's dot products of 16-bit numbers do several times as many multiplications per
second as the units for float32, and 16-bit numbers are half the data. Most networks are trained and run that way. A
program that needs the digits (a solver, a metric, a small difference of large numbers) is not.

Example
    loss = criterion(model(x), y)

Use instead
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(model(x), y)

On a GPU `torch.set_float32_matmul_precision("high")` at the program's start allows TF32 without another line.

How the saving is estimated
Each product and its backward nodes keep the share given by the roofline model: the longer of its arithmetic and its
data transfer, at the rate of the shorter type over that of float32 (Williams, Waterman and Patterson, CACM 52(4),
2009). The rates are those of the GPU's data sheet. Under `autocast` each product's tensors are also read as float32 and
written as bfloat16. If rows of the matrices do not begin at multiples of 16 bytes, the product takes as long as kernels
that load single elements (see `misaligned-matmul`). A CPU may even be slower with bfloat16, and peak rates say little
about a whole network with its casts, so there only `--measure` finds it: it runs the recorded products both ways.
PyTorch before 2.1 records no stride and padding: convolutions then count as if they kept the size of the image.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np
from msgspec import structs

from profkit.derive.families import MATRIX
from profkit.derive.operators.operators import has_type
from profkit.patterns import Call, by_call, costliest_lines, each_step, in_most_steps, program_operators, times_per_step
from profkit.patterns.program import launching
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.run.directory import Rates
from profkit.savings import run_in_both, scale_with_backward, share_with_backward
from profkit.savings.cost_models.alignment import is_misaligned, misaligned_least_ns
from profkit.savings.cost_models.devices import ALLOWING_TF32, TF32_KERNEL, has_tf32, rates_of, why_no_rates
from profkit.savings.cost_models.roofline import (
    ITEM_BYTES,
    Work,
    is_convolution,
    product_of,
    settings_that_keep_size,
    work_of,
)
from profkit.savings.replay import replay
from profkit.trace import Bools, Category, Rows

_MIN_OPERATIONS = 4e6
"""Fewer take some 50 µs on a core without units for tiles (32 operations a cycle), as long as dispatching an operator
and three casts."""
_MIN_SHARE = 0.1
"""Of the step. Half of less is a twentieth: nobody compares accuracies for that."""
_MIN_GAIN = 0.05
"""Of the step, or of what TF32 leaves of it, on a GPU: nobody compares accuracies for less."""
_WIDE_KERNEL = re.compile(r"sgemm|scudnn|f32f32_f32f32|_simt_s", re.IGNORECASE)
"""Names of cuBLAS and cuDNN kernels that multiply in float32."""
_UNCERTAINTY = 0.3
"""Large products reach the peak rates. Operators between two products may gain, or need a cast."""
_GUESSED = 0.5
"""The same for a recording that holds no stride and padding of convolutions: where they move by two, they take a
quarter of the arithmetic."""
_FIX = (
    "Where accuracy allows, run the forward pass under `torch.autocast('{device}', dtype=torch.bfloat16)`. "
    "Parameters stay float32, products use bfloat16. Results change: compare the accuracy."
)
_HALF_FIX = (
    "Where accuracy allows, run the forward pass under `torch.autocast('cuda', dtype=torch.float16)`. Scale the "
    "loss with `torch.amp.GradScaler`, as small gradients vanish in float16. Parameters stay float32. Results "
    "change: compare the accuracy."
)
_SHORT = {"bfloat16": 8, "float16": 11}
"""The types of 16 bits, the better one first, and the bits of a factor that they keep. GPUs before Ampere (V100, T4,
RTX 20) have tensor cores for float16 alone."""
_TF32_FIX = (
    "Where accuracy allows, call `torch.set_float32_matmul_precision('high')` once (for convolutions "
    "`torch.backends.cudnn.allow_tf32 = True`). Products then use TF32. Results change: compare the accuracy."
)
_UNMEASURED = "what bfloat16 gains on this CPU has to be measured: `--measure` does it"


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def full_precision_matmul(facts: Facts) -> Suspicions:
    """One finding for all products of the step, at the line that spends most on them. On a GPU, one for each of the two
    shorter types that gives enough back."""
    rows = _wide_products(facts)
    if in_most_steps(facts, rows) and share_with_backward(facts, rows) >= _MIN_SHARE:
        yield from _on_device(facts, rows) if facts.device.present else [_on_processor(facts, rows)]


def _on_processor(facts: Facts, rows: Rows) -> Suspicion:
    host = facts.run.host
    if host is None or host.bfloat16 is None:
        raise CannotLook("the recording does not say whether the processor has instructions for bfloat16")
    if not host.bfloat16:
        raise CannotLook("the processor has no instructions for bfloat16")
    trial = run_in_both(facts, rows, "reduced-precision", _UNCERTAINTY, "float32", "bfloat16")
    if trial is None:
        raise CannotLook(_UNMEASURED)
    known = "in full float32 on a processor with instructions for bfloat16."
    found = _suspicion(facts, rows, "multiplies", "multiply", known, _FIX.format(device="cpu"))
    return structs.replace(found, trial=trial, unpriced=_UNMEASURED)


def _on_device(facts: Facts, rows: Rows) -> Suspicions:
    """TF32 if a setting forbids it, and what bfloat16 gives beyond that."""
    rates = rates_of(facts)
    if rates is None:
        raise CannotLook(f"what this GPU does with TF32 is not known: {why_no_rates(facts)}")
    full, gained = np.ones(len(rows), dtype=bool), 0.0
    if has_tf32(rates):
        full = _in_full_precision(facts, rows)
        kept = by_call(facts, rows[full], partial(_kept, rates, "float32", "tf32"), float)
        edit = scale_with_backward(facts, rows[full], kept, _uncertainty(facts, rows[full]))
        if in_most_steps(facts, rows[full]) and replay(facts, edit).fraction >= _MIN_GAIN:
            gained = replay(facts, edit).fraction
            known = "in full float32 on a GPU that has TF32; that would keep 11 of the 24 bits."
            found = _suspicion(facts, rows[full], "multiplies", "multiply", known, _TF32_FIX)
            trial = run_in_both(facts, rows[full], "reduced-precision", _UNCERTAINTY, "float32", "tf32")
            yield structs.replace(found, edit=edit, trial=trial)
    short = next((kind for kind in _SHORT if kind in rates.products), None)
    if short is not None:
        yield from _in_16_bits(facts, rows, full, rates, gained, short)


def _in_16_bits(facts: Facts, rows: Rows, full: Bools, rates: Rates, by_tf32: float, short: str) -> Suspicions:
    """What the type ``short`` gives back beyond ``by_tf32``, the saving of TF32. ``full`` are the products that
    multiply in float32 now."""
    kept = np.ones(len(rows))
    for mine, rate in ((full, "float32"), (~full, "tf32")):
        kept[mine] = by_call(facts, rows[mine], partial(_kept, rates, rate, short), float)
    edit = scale_with_backward(facts, rows, kept, _uncertainty(facts, rows))
    gained = replay(facts, edit).fraction
    if gained - by_tf32 < _MIN_GAIN * (1 - by_tf32):
        return
    slower = "float32" if full.any() and not by_tf32 else "tf32"
    times = rates.products[short] / rates.products[slower]
    name = {"tf32": "TF32"}.get(slower, slower)
    known = f"float32 tensors on a GPU that multiplies {short} {times:.2g} times as fast as {name}; that would keep "
    known += f"{_SHORT[short]} "
    fix = _FIX.format(device="cuda") if short == "bfloat16" else _HALF_FIX
    fix += " The gain is what comes on top of that of TF32." if by_tf32 else ""
    found = _suspicion(facts, rows, "takes", "take", f"{known}of the 24 bits.", fix)
    yield structs.replace(found, joint=edit, part=(gained - by_tf32) / gained)


def _suspicion(facts: Facts, rows: Rows, verb: str, verbs: str, known: str, fix: str) -> Suspicion:
    count = times_per_step(facts, rows)
    return Suspicion(
        message=f"{each_step(count, 'product', verb, verbs)} {known}",
        fix=fix,
        rows=rows,
        confidence=0.8,
        count=count,
        places=costliest_lines(facts, rows),
        evidence={"products_per_step": count},
    )


def _wide_products(facts: Facts) -> Rows:
    """The program's large products of float32 tensors in which nothing runs in 16 bits (autocast)."""
    called = program_operators(facts, MATRIX)
    if len(called) and not by_call(facts, called, _has_types).any():
        raise CannotLook("the recording holds no types of tensors")
    inside = facts.tree.holding(
        has_type(facts.trace, "c10::Half", "c10::BFloat16") & (facts.trace.events.category == Category.OPERATOR)
    )
    is_float = has_type(facts.trace, "float") & ~has_type(facts.trace, "double")
    called = called[(is_float & ~inside)[called]]
    chosen: Rows = called[by_call(facts, called, _is_large)]
    return chosen


def _uncertainty(facts: Facts, rows: Rows) -> float:
    return _GUESSED if by_call(facts, rows, _is_guessed).any() else _UNCERTAINTY


def _has_types(call: Call) -> bool:
    return any(call.types)


def _is_guessed(call: Call) -> bool:
    return is_convolution(call.name) and not call.values


def _work(call: Call) -> Work | None:
    return work_of(call.name, call.dims, settings_that_keep_size(call.dims) if _is_guessed(call) else call.values)


def _is_large(call: Call) -> bool:
    work = _work(call)
    return work is not None and work.operations >= _MIN_OPERATIONS


def _in_full_precision(facts: Facts, rows: Rows) -> Bools:
    """The products that launch a float32 kernel because a setting forbids TF32, if that is known. A recording from
    elsewhere has no settings; there another product, or another convolution, in TF32 shows that TF32 is allowed."""
    flags, convolution = facts.run.flags, facts.trace.where_name(is_convolution)[rows]
    narrow = launching(facts, rows, facts.trace.matching(TF32_KERNEL))
    wide = launching(facts, rows, facts.trace.matching(_WIDE_KERNEL)) & ~narrow
    for_convolutions, for_products = flags.get("cudnn_tf32"), flags.get("matmul_precision")
    allowed = np.where(
        convolution,
        (convolution & narrow).any() if for_convolutions is None else for_convolutions is True,
        (~convolution & narrow).any() if for_products is None else for_products in ALLOWING_TF32,
    )
    return wide & ~allowed


def _kept(rates: Rates, rate: str, to: str, call: Call) -> float:
    """The share of a product's time that stays, by the roofline. Under autocast its tensors are also read as float32
    once more and written as bfloat16."""
    kind = to if to in ITEM_BYTES else "float32"
    work, product = _work(call), product_of(call.name, call.dims)
    before = work.least_ns(rates, "float32", rate) if work else None
    after = work.least_ns(rates, kind, to) if work else None
    if work is None or not before or not after:
        return 1.0
    if product is not None and is_misaligned(product, ITEM_BYTES[kind]):
        after = max(after, misaligned_least_ns(work.operations, rates, to))
    if kind != "float32":
        after += work.elements * (ITEM_BYTES["float32"] + ITEM_BYTES[kind]) / rates.bandwidth * 1e9
    return min(1.0, after / before)
