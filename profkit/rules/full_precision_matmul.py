"""Products of matrices multiply all 24 bits of a float32, where the device is faster with fewer.

What it detects
Matrix products and convolutions of float32 tensors that take a tenth of the step or more: on a GPU that has TF32 those
whose kernels do not use it, on a CPU with instructions for bfloat16 all that do not run under `autocast`. Small
products do not count. It is an opportunity, for the results change: TF32 keeps 11 of the 24 bits of each factor,
bfloat16 keeps 8; sums are still float32.

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
2009). The rates are those of the GPU's data sheet. A CPU may even be slower with bfloat16, and peak rates say
little of a whole network with its casts, so there only `--measure` finds it: the recorded products run in both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import MATRIX, operators_of
from profkit.derive.operators.operators import parse_types
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import program_operators
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import costliest_lines
from profkit.ruling.pricing import run_in_both, scale_with_backward, share_with_backward
from profkit.run import Rates
from profkit.savings.devices import rates_of
from profkit.savings.edits import Edit
from profkit.savings.roofline import Work, is_convolution, work_of
from profkit.trace.events import Bools, Category, Rows
from profkit.trace.values import distinct, distinct_rows
from profkit.units import format_count, pick_form

_MIN_OPERATIONS = 4e6
"""Fewer take some 50 us on a core without units for tiles (32 operations a cycle), which is what dispatching an
operator and three casts may take."""
_MIN_SHARE = 0.1
"""Of the step. Half of less is a twentieth: nobody compares accuracies for that."""
_WIDE_KERNEL = re.compile(r"sgemm|scudnn|f32f32_f32f32|_simt_s", re.IGNORECASE)
"""How cuBLAS and cuDNN name kernels that multiply in float32; those for TF32 say `tf32` or `s1688gemm`."""
_REDUCED = ("c10::Half", "c10::BFloat16")
_TF32 = ("high", "medium")
"""What `torch.set_float32_matmul_precision` calls the settings that let products use TF32 or less."""
_UNCERTAINTY = 0.3
"""Peak rates are reached by large products; operators between two products gain, or need a cast, as it happens."""
_CPU_FIX = (
    "Where the accuracy allows it, run the forward pass under `torch.autocast('cpu', dtype=torch.bfloat16)`: the "
    "parameters stay float32, products use bfloat16. Results change; compare the accuracy."
)
_GPU_FIX = (
    "Where the accuracy allows it, call `torch.set_float32_matmul_precision('high')` once (for convolutions "
    "`torch.backends.cudnn.allow_tf32 = True`): products use TF32. Results change; compare the accuracy."
)
_UNMEASURED = "what bfloat16 gains on this CPU has to be measured: `--measure` does it"


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def full_precision_matmul(facts: Facts) -> Iterator[Suspicion]:
    """One finding for all products of the step, at the line that spends most in them."""
    rows = _wide_products(facts)
    if facts.device.present:
        rows = _without_tf32(facts, rows)
    if not in_most_steps(facts, rows) or share_with_backward(facts, rows) < _MIN_SHARE:
        return
    to, rates = _reduced_type(facts)
    if not to:
        return
    trial = run_in_both(facts, rows, "reduced-precision", _UNCERTAINTY, "float32", to)
    edit = _priced(facts, rows, to, rates)
    if trial is None and edit is None:
        raise CannotLook(_UNMEASURED)
    count = times_per_step(facts, rows)
    device = "a GPU that has TF32" if facts.device.present else "a processor with instructions for bfloat16"
    yield Suspicion(
        message=f"{format_count(count, 'product')} a step {pick_form(count, 'multiplies', 'multiply')} in full "
        f"float32 on {device}.",
        fix=_GPU_FIX if facts.device.present else _CPU_FIX,
        rows=rows,
        edit=edit,
        confidence=0.8,
        count=count,
        places=costliest_lines(facts, rows),
        evidence={"products_per_step": count},
        trial=trial,
        unpriced="" if edit else _UNMEASURED,
    )


def _reduced_type(facts: Facts) -> tuple[str, Rates | None]:
    """What the device multiplies faster than float32, empty where it has nothing of the kind, and its rates."""
    rates = rates_of(facts)
    if facts.device.present:
        if rates is None:
            raise CannotLook("no data sheet is known that says what this GPU does with TF32")
        # PyTorch's setting has no effect on AMD's GPUs but for some.
        has_tf32 = "tf32" in rates.products and not rates.device.startswith("AMD")
        return ("tf32" if has_tf32 else ""), rates
    host = facts.run.host
    if host is None or host.bfloat16 is None:
        raise CannotLook("the recording does not say whether the processor has instructions for bfloat16")
    if not host.bfloat16:
        raise CannotLook("the processor has no instructions for bfloat16")
    return "bfloat16", rates


def _wide_products(facts: Facts) -> Rows:
    """The program's products of float32 tensors that are large, and in which nothing runs in 16 bits (autocast)."""
    called = program_operators(facts)
    called = called[operators_of(facts.trace, MATRIX)[called]]
    inside = facts.tree.holding(_with_types(facts, _is_reduced))
    called = called[_with_types(facts, _is_float32)[called] & ~inside[called]]
    inverse, works = _works_of(facts, called)
    large = np.array([work is not None and work.operations >= _MIN_OPERATIONS for work in works], dtype=bool)
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


def _works_of(facts: Facts, rows: Rows) -> tuple[Rows, list[Work | None]]:
    """What the distinct calls among the rows work, and before it which of them each row is."""
    events, trace = facts.trace.events, facts.trace
    first, inverse = distinct_rows(events.name_code[rows], events.dims_code[rows], events.concrete_code[rows])
    works = [
        work_of(trace.name_of(row), trace.text_of(events.dims_code[row]), trace.text_of(events.concrete_code[row]))
        for row in rows[first].tolist()
    ]
    return inverse, works


def _without_tf32(facts: Facts, rows: Rows) -> Rows:
    """Those that launch a kernel which multiplies in float32, and that a setting forbids TF32, as far as is known."""
    trace, launches, flags = facts.trace, facts.launches, facts.run.flags
    wide = trace.where_name(lambda name: _WIDE_KERNEL.search(name) is not None)
    narrow = trace.where_name(lambda name: "tf32" in name.lower())
    owner = launches.owner
    owner = owner[(owner >= 0) & (wide & ~narrow)[launches.work]]
    carrier = facts.tree.nearest_ancestor(trace.mask_of(rows), include_self=True, of=owner)
    rows = rows[trace.mask_of(carrier[carrier >= 0])[rows]]
    convolution = trace.where_name(is_convolution)[rows]
    allowed = np.where(convolution, flags.get("cudnn_tf32") is True, flags.get("matmul_precision") in _TF32)
    kept: Rows = rows[~allowed]
    return kept


def _priced(facts: Facts, rows: Rows, to: str, rates: Rates | None) -> Edit | None:
    """The roofline's price on a GPU whose rates of either type are known."""
    if rates is None or not facts.device.present or not {"float32", to} <= rates.products.keys():
        return None
    inverse, works = _works_of(facts, rows)
    kept = np.array([_kept_share(work, rates, to) for work in works])
    return scale_with_backward(facts, rows, kept[inverse], _UNCERTAINTY)


def _kept_share(work: Work | None, rates: Rates, to: str) -> float:
    """Of one call's time."""
    before = work.least_ns(rates, "float32") if work else None
    after = work.least_ns(rates, "float32", to) if work else None
    return min(1.0, after / before) if before and after else 1.0
