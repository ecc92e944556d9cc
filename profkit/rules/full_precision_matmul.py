"""Products of matrices multiply all 24 bits of a float32, where the device is faster with fewer.

What it detects
Matrix products and convolutions of float32 tensors that take a tenth of the step or more. On a GPU that has TF32 those
whose kernels do not use it, though a setting could allow it; then, as a second opportunity, what bfloat16 gives beyond
that. Either has to make the step, or what TF32 leaves of it, a twentieth shorter. On a CPU with instructions for
bfloat16 all that do not run under `autocast`. Small products do not count. It is an opportunity, for the results
change: TF32 keeps 11 of the 24 bits of each factor, bfloat16 keeps 8; sums are still float32. Whether TF32 is allowed
is read from the program's settings, in a recording from elsewhere from the names of the other kernels.

Why is this bad?
The units of a GPU that multiply whole tiles, and the dot products of 16-bit numbers of a CPU, do several times as many
multiplications in a second as those for float32, and 16-bit numbers are half the data. Networks are mostly trained and
run that way. A program that needs the digits (a solver, a metric, a small difference of large numbers) does not.

Example
    loss = criterion(model(x), y)

Use instead
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(model(x), y)

On a GPU `torch.set_float32_matmul_precision("high")` at the program's start allows TF32 without another line.

How the saving is estimated
Each product, and its backward nodes, keep the share that the roofline model gives: the longer of its arithmetic and the
moving of its data, at the rate of TF32 or bfloat16 over that of float32 (Williams, Waterman and Patterson, CACM 52(4),
2009). The rates are those of the GPU's data sheet. Under `autocast` each product's tensors are read as float32 and
written as bfloat16 besides. Where rows of the matrices do not begin at multiples of 16 bytes, the product takes what
kernels take that load single elements (see `misaligned-matmul`). A CPU may even be slower with bfloat16, and peak rates
say little of a whole network with its casts. There only `--measure` finds it: the recorded products run in both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.derive.families import MATRIX
from profkit.derive.operators.operators import parse_types
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import launching, program_operators
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import costliest_lines
from profkit.ruling.pricing import run_in_both, scale_with_backward, share_with_backward
from profkit.run import Rates
from profkit.savings.alignment import is_misaligned, misaligned_least_ns
from profkit.savings.devices import ALLOWING_TF32, has_tf32, rates_of
from profkit.savings.replay import replay
from profkit.savings.roofline import ITEM_BYTES, Product, Work, is_convolution, product_of, work_of
from profkit.savings.trial import Trial
from profkit.trace.events import Bools, Category, Float64s, Rows
from profkit.trace.values import distinct, distinct_rows
from profkit.units import format_count, pick_form

_MIN_OPERATIONS = 4e6
"""Fewer take some 50 µs on a core without units for tiles (32 operations a cycle), which is what dispatching an
operator and three casts may take."""
_MIN_SHARE = 0.1
"""Of the step. Half of less is a twentieth: nobody compares accuracies for that."""
_MIN_GAIN = 0.05
"""Of the step, or of what TF32 leaves of it, on a GPU: nobody compares accuracies for less."""
_WIDE_KERNEL = re.compile(r"sgemm|scudnn|f32f32_f32f32|_simt_s", re.IGNORECASE)
"""How cuBLAS and cuDNN name kernels that multiply in float32."""
_TF32_KERNEL = re.compile(r"tf32|s1688gemm|nvjet_\w*_sss", re.IGNORECASE)
"""How those for TF32 are named, if the tensors are float32."""
_REDUCED = ("c10::Half", "c10::BFloat16")
_UNCERTAINTY = 0.3
"""Peak rates are reached by large products; operators between two products gain, or need a cast, as it happens."""
_CPU_FIX = (
    "Where the accuracy allows it, run the forward pass under `torch.autocast('cpu', dtype=torch.bfloat16)`: the "
    "parameters stay float32, products use bfloat16. Results change; compare the accuracy."
)
_TF32_FIX = (
    "Where the accuracy allows it, call `torch.set_float32_matmul_precision('high')` once (for convolutions "
    "`torch.backends.cudnn.allow_tf32 = True`): products use TF32. Results change; compare the accuracy."
)
_BFLOAT16_FIX = (
    "Where the accuracy allows it, run the forward pass under `torch.autocast('cuda', dtype=torch.bfloat16)`: the "
    "parameters stay float32, products use bfloat16. Results change; compare the accuracy."
)
_BEYOND_FIX = f"{_BFLOAT16_FIX} The gain is what comes on top of that of TF32."
_SLOWER = {True: ("float32", "float32"), False: ("tf32", "TF32")}
_UNMEASURED = "what bfloat16 gains on this CPU has to be measured: `--measure` does it"


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def full_precision_matmul(facts: Facts) -> Iterator[Suspicion]:
    """One finding for all products of the step, at the line that spends most in them; on a GPU one for each of the two
    types that take less, if both give enough back."""
    rows = _wide_products(facts)
    if facts.device.present:
        yield from _on_device(facts, rows)
    elif in_most_steps(facts, rows) and share_with_backward(facts, rows) >= _MIN_SHARE:
        yield _on_processor(facts, rows)


def _on_processor(facts: Facts, rows: Rows) -> Suspicion:
    host = facts.run.host
    if host is None or host.bfloat16 is None:
        raise CannotLook("the recording does not say whether the processor has instructions for bfloat16")
    if not host.bfloat16:
        raise CannotLook("the processor has no instructions for bfloat16")
    trial = run_in_both(facts, rows, "reduced-precision", _UNCERTAINTY, "float32", "bfloat16")
    if trial is None:
        raise CannotLook(_UNMEASURED)
    count = times_per_step(facts, rows)
    message = (
        f"{format_count(count, 'product')} a step {pick_form(count, 'multiplies', 'multiply')} in full float32 on a "
        "processor with instructions for bfloat16."
    )
    found = _suspicion(facts, rows, message, _CPU_FIX, trial)
    return structs.replace(found, unpriced=_UNMEASURED)


def _on_device(facts: Facts, rows: Rows) -> Iterator[Suspicion]:
    """TF32 where a setting forbids it, and what bfloat16 gives beyond that."""
    if not in_most_steps(facts, rows) or share_with_backward(facts, rows) < _MIN_SHARE:
        return
    rates = rates_of(facts)
    if rates is None:
        raise CannotLook("no data sheet is known that says what this GPU does with TF32")
    full = _in_full_precision(facts, rows) if has_tf32(rates) else np.ones(len(rows), dtype=bool)
    gained = 0.0
    if has_tf32(rates):
        for found in _in_tf32(facts, rows[full], rates):
            gained = replay(facts, found.edit).fraction if found.edit else 0.0
            yield found
    if "bfloat16" in rates.products:
        yield from _in_bfloat16(facts, rows, full, rates, gained)


def _in_tf32(facts: Facts, rows: Rows, rates: Rates) -> Iterator[Suspicion]:
    if not in_most_steps(facts, rows):
        return
    edit = scale_with_backward(facts, rows, _kept(facts, rows, rates, "float32", "tf32"), _UNCERTAINTY)
    if replay(facts, edit).fraction < _MIN_GAIN:
        return
    count = times_per_step(facts, rows)
    message = (
        f"{format_count(count, 'product')} a step {pick_form(count, 'multiplies', 'multiply')} in full float32 on a "
        "GPU that has TF32; that would keep 11 of the 24 bits."
    )
    trial = run_in_both(facts, rows, "reduced-precision", _UNCERTAINTY, "float32", "tf32")
    yield structs.replace(_suspicion(facts, rows, message, _TF32_FIX, trial), edit=edit)


def _in_bfloat16(facts: Facts, rows: Rows, full: Bools, rates: Rates, by_tf32: float) -> Iterator[Suspicion]:
    """What is left for bfloat16 to give back, ``by_tf32`` being what TF32 does; ``full`` are those that multiply in
    float32 now."""
    kept = np.ones(len(rows))
    for mine, rate in ((full, "float32"), (~full, "tf32")):
        kept[mine] = _kept(facts, rows[mine], rates, rate, "bfloat16")
    edit = scale_with_backward(facts, rows, kept, _UNCERTAINTY)
    gained = replay(facts, edit).fraction
    if gained - by_tf32 < _MIN_GAIN * (1 - by_tf32):
        return
    count, (slower, name) = times_per_step(facts, rows), _SLOWER[bool(full.any()) and not by_tf32]
    message = (
        f"{format_count(count, 'product')} a step {pick_form(count, 'takes', 'take')} float32 tensors on a GPU that "
        f"multiplies bfloat16 {rates.products['bfloat16'] / rates.products[slower]:.2g} times as fast as {name}; that "
        "would keep 8 of the 24 bits."
    )
    found = _suspicion(facts, rows, message, _BEYOND_FIX if by_tf32 else _BFLOAT16_FIX, None)
    yield structs.replace(found, joint=edit, part=(gained - by_tf32) / gained)


def _suspicion(facts: Facts, rows: Rows, message: str, fix: str, trial: Trial | None) -> Suspicion:
    count = times_per_step(facts, rows)
    return Suspicion(
        message=message,
        fix=fix,
        rows=rows,
        confidence=0.8,
        count=count,
        places=costliest_lines(facts, rows),
        evidence={"products_per_step": count},
        trial=trial,
    )


def _wide_products(facts: Facts) -> Rows:
    """The program's products of float32 tensors that are large, and in which nothing runs in 16 bits (autocast)."""
    called = program_operators(facts, MATRIX)
    inside = facts.tree.holding(_with_types(facts, _is_reduced))
    called = called[_with_types(facts, _is_float32)[called] & ~inside[called]]
    inverse, works = _works_of(facts, called)
    large = np.array([work is not None and work.operations >= _MIN_OPERATIONS for work, _ in works], dtype=bool)
    chosen: Rows = called[large[inverse]]
    return chosen


def _is_float32(kinds: Sequence[str]) -> bool:
    return "float" in kinds and "double" not in kinds


def _is_reduced(kinds: Sequence[str]) -> bool:
    return any(kind in kinds for kind in _REDUCED)


def _with_types(facts: Facts, accept: Callable[[Sequence[str]], bool]) -> Bools:
    """Operators whose inputs have such types; told once for each distinct list of types."""
    codes = facts.trace.events.types_code
    kinds = {code: parse_types(facts.trace.text_of(code)) for code in distinct(codes[codes >= 0]).tolist()}
    chosen = [code for code, listed in kinds.items() if accept(listed)]
    mask: Bools = np.isin(codes, chosen) & (facts.trace.events.category == Category.OPERATOR)
    return mask


def _works_of(facts: Facts, rows: Rows) -> tuple[Rows, list[tuple[Work | None, Product | None]]]:
    """What the distinct calls among the rows work, with the matrices' sizes where they are products, and before it
    which of them each row is."""
    events, trace = facts.trace.events, facts.trace
    first, inverse = distinct_rows(events.name_code[rows], events.dims_code[rows], events.concrete_code[rows])
    texts = [
        (trace.name_of(row), trace.text_of(events.dims_code[row]), trace.text_of(events.concrete_code[row]))
        for row in rows[first].tolist()
    ]
    return inverse, [(work_of(*of_one), product_of(*of_one[:2])) for of_one in texts]


def _in_full_precision(facts: Facts, rows: Rows) -> Bools:
    """Which of them launch a kernel that multiplies in float32 because a setting forbids TF32, as far as is known: a
    recording from elsewhere has no settings, and there another product in TF32 shows that it is allowed, or another
    convolution."""
    flags, convolution = facts.run.flags, facts.trace.where_name(is_convolution)[rows]
    narrow = launching(facts, rows, facts.trace.matching(_TF32_KERNEL))
    wide = launching(facts, rows, facts.trace.matching(_WIDE_KERNEL)) & ~narrow
    for_convolutions, for_products = flags.get("cudnn_tf32"), flags.get("matmul_precision")
    allowed = np.where(
        convolution,
        (convolution & narrow).any() if for_convolutions is None else for_convolutions is True,
        (~convolution & narrow).any() if for_products is None else for_products in ALLOWING_TF32,
    )
    full: Bools = wide & ~allowed
    return full


def _kept(facts: Facts, rows: Rows, rates: Rates, rate: str, to: str) -> Float64s:
    """Of each product's time, by the roofline."""
    inverse, works = _works_of(facts, rows)
    kept = [_kept_share(work, product, rates, rate, to) for work, product in works]
    return np.array(kept, dtype=float)[inverse]


def _kept_share(work: Work | None, product: Product | None, rates: Rates, rate: str, to: str) -> float:
    """Of one call's time. Under autocast its tensors are read as float32 once more and written as bfloat16."""
    kind = to if to in ITEM_BYTES else "float32"
    before = work.least_ns(rates, "float32", rate) if work else None
    after = work.least_ns(rates, kind, to) if work else None
    if work is None or not before or not after:
        return 1.0
    if product is not None and is_misaligned(product, ITEM_BYTES[kind]):
        after = max(after, misaligned_least_ns(work.operations, rates, to))
    if kind != "float32":
        after += work.elements * (ITEM_BYTES["float32"] + ITEM_BYTES[kind]) / rates.bandwidth * 1e9
    return min(1.0, after / before)
