"""Products of matrices whose rows do not begin at multiples of 16 bytes miss the fast kernels of the GPU.

What it detects
Products in 16 bits or TF32 whose kernels' names say that they load fewer than 16 bytes at once (`align1`, `align2`, on
AMD's GPUs `GLVWA2`), or that they do without the tile units (`fp16_sgemm`), if the step would be 1 % shorter with
aligned ones. Mostly a dimension is no multiple of 8 (16 bits) or 4 (TF32), like a vocabulary of 50,257. If all of them
are, a matrix is a slice that begins at an odd place. A shape alone says nothing: the layout decides which dimension is
the length of a row. Convolutions do not count, nor do 8-bit products, which PyTorch refuses on such shapes. It is an
opportunity: a padded layer has more parameters.

Why is this bad?
A thread loads 16 bytes in one instruction if they begin at a multiple of 16. With rows of an odd length they do not,
and the library falls back to kernels that load single elements, often those of a GPU two generations older. The
multiply units wait for the data; on an H100 such products take seven times as long. The backward products have the same
dimensions.

Example
    head = nn.Linear(1024, 50257, bias=False)

Use instead
    head = nn.Linear(1024, 50304, bias=False)  # the next multiple of 64; no target names the 47 new columns

How the saving is estimated
Each such kernel takes what a product padded to the next multiple of 128 bytes takes by the roofline model (Williams,
Waterman and Patterson, CACM 52(4), 2009), padded work included, at the share of the peak that the other large products
of the same type reach in this recording; if there are none, at three quarters of it (0.54 on an MI300X). The peak
rates come from the GPU's data sheet. Cutting the padded columns off again is not included.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from profkit.patterns import in_most_steps, name_lines, order_sites, times_per_step
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    pick_form,
    rule,
)
from profkit.run.directory import Rates
from profkit.savings import Edit, dtype_of, shrink_work
from profkit.savings.cost_models.alignment import LOADED_BYTES, achievable, aligned_elements, padded
from profkit.savings.cost_models.devices import presumed_rates
from profkit.savings.cost_models.roofline import ITEM_BYTES, Product, product_of
from profkit.trace import Bools, Category, Int64s, Rows, distinct_rows

_OF_TILES = re.compile(r"tensorop|_tensor\d+x\d+x\d+")
"""What CUTLASS, and cuBLAS in its own kernels, call the units that multiply tiles."""
_ALIGNMENTS = re.compile(r"_align[ac]?(\d+)")
"""The number of elements that such a kernel loads at once: one for all, or one for either factor and the result."""
_TENSILE = re.compile(r"^Cijk_.*?_G[LR]VWA(\d+)_G[LR]VWB(\d+)_")
"""Tensile's kernels, of rocBLAS and hipBLASLt, name the elements that a thread loads at once of either factor
(``GlobalReadVectorWidth``). Some load fewer where all sizes are even, so they only count with odd ones."""
_WITHOUT_TILES = re.compile(r"_(?:fp|bf)16_sgemm_")
"""cuBLAS's choice on a Volta for 16-bit matrices that the tile units cannot load."""
_RATES = {"float32": "tf32", "float16": "float16", "bfloat16": "bfloat16"}
_LARGE_NS = 20_000
"""By the roofline. In a shorter product the beginning and the end weigh as much as the middle."""
_MIN_FRACTION = 0.01
"""Less than one per cent of the step is a detail of one layer."""
_UNCERTAINTY = 0.2
"""Of two products with 50,304 columns one reached 0.77 of the peak and the other 0.98 (H100, bfloat16)."""
_SHOWN = 3
"""Dimensions in a message."""
_MAIN = 0.5
"""Of the time: a vocabulary takes part in three products, the number of words in a batch only in the gradient."""
_SLICE_FIX = (
    "Let every matrix, and each of its rows, start at a multiple of 16 bytes. Copy a slice of a wider tensor "
    "into its own tensor (`.clone()`, `.contiguous()`), once and not in each step."
)


class _Operands(Struct, frozen=True):
    """What one kind of call multiplies."""

    product: Product
    item_bytes: int
    rate: str

    @property
    def odd_sizes(self) -> list[int]:
        """Sizes whose rows do not all begin at multiples of 16 bytes. The number of rows is only the length of a row in
        a transposed factor, as in the gradient of a weight."""
        unit, product = aligned_elements(self.item_bytes), self.product
        lengths = [size for size in (product.inner, product.columns) if size % unit]
        return lengths or [size for size in (product.rows,) if size % unit]

    def least_ns(self, rates: Rates, is_padded: bool = False) -> float:
        """By the roofline, as it is or with those sizes padded; 0 if the rate is not known."""
        peak, batch = rates.products.get(self.rate), self.product.batch
        sizes = (self.product.rows, self.product.inner, self.product.columns)
        rows, inner, columns = (
            padded(size, self.item_bytes) if is_padded and size in self.odd_sizes else size for size in sizes
        )
        moved = batch * (rows * inner + inner * columns + rows * columns) * self.item_bytes
        return max(2.0 * batch * rows * inner * columns / peak, moved / rates.bandwidth) * 1e9 if peak else 0.0


class _Kernels(Struct, frozen=True):
    """Kernels of products: for each the operator that launched it, and the number of its ``operands``."""

    work: Rows
    operator: Rows
    operands: tuple[_Operands, ...]
    kind: Int64s

    def take(self, chosen: Bools | Rows) -> _Kernels:
        return structs.replace(self, work=self.work[chosen], operator=self.operator[chosen], kind=self.kind[chosen])

    def tell(self, ask: Callable[[_Operands], Any]) -> NDArray[Any]:
        """What ``ask`` says of the operands of each."""
        return np.array([ask(one) for one in self.operands])[self.kind]


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def misaligned_matmul(facts: Facts) -> Suspicions:
    """One finding for all such products of the step, at the line that spends most in them, forward and backward."""
    kernels = _kernels_of_products(facts)
    if kernels is None:
        return
    load_little = _load_little(facts, kernels)
    slow = kernels.take(load_little)
    if not in_most_steps(facts, slow.operator):
        return
    rates = presumed_rates(facts)
    if rates is None:
        raise CannotLook("no data sheet says how fast this GPU multiplies aligned matrices")
    yield _report(
        facts, slow, _as_aligned(facts, slow, rates, _reached_share(facts, kernels.take(~load_little), rates))
    )


def _report(facts: Facts, slow: _Kernels, edit: Edit) -> Suspicion:
    took_ns = facts.trace.events.duration_ns[slow.work]
    count, spent_ns = times_per_step(facts, slow.work), facts.steps.per_step_ns(took_ns.sum())
    odd = Counter[tuple[int, int]]()
    for one, ns in zip(slow.tell(lambda one: one), took_ns.tolist(), strict=True):
        odd.update({(size, one.item_bytes): ns for size in one.odd_sizes})
    shown = [size for size, ns in odd.most_common(_SHOWN) if ns >= _MAIN * max(odd.values())]
    return Suspicion(
        message=f"{format_count(count, 'product')} a step {pick_form(count, 'loads', 'load')} fewer than "
        f"{LOADED_BYTES} bytes at once, {format_time(spent_ns)} in all: {_reason(shown)}.",
        fix=_padding_fix(shown) if shown else _SLICE_FIX,
        rows=slow.operator,
        edit=edit,
        worth=_MIN_FRACTION,
        confidence=0.9 if shown else 0.8,
        count=count,
        spent_ns=spent_ns,
        places=name_lines(facts, order_sites(facts.lines.forward_site[slow.operator], took_ns)),
        evidence={"products_per_step": count, **({"dimension": shown[0][0]} if shown else {})},
    )


def _reason(odd: list[tuple[int, int]]) -> str:
    if not odd:
        return "a matrix or its rows do not start at a multiple of that, as in a slice of a wider tensor"
    units = sorted({aligned_elements(item_bytes) for _, item_bytes in odd})
    sizes = " and ".join(f"{size:,}" for size in dict.fromkeys(size for size, _ in odd))
    verb = "is" if len({size for size, _ in odd}) == 1 else "are"
    return f"{sizes} {verb} no multiple of {' or '.join(map(str, units))}"


def _padding_fix(odd: list[tuple[int, int]]) -> str:
    size, item_bytes = odd[0]
    return (
        f"Pad that dimension to a multiple of {padded(1, item_bytes)}, {padded(size, item_bytes):,} instead of "
        f"{size:,}. A vocabulary or a layer gets a few more columns that no target names and nothing reads; an "
        "input gets a few zeros."
    )


def _kernels_of_products(facts: Facts) -> _Kernels | None:
    """Those that the measured steps launch, if shape and type of the product are known."""
    launches, events = facts.launches, facts.trace.events
    owned = (launches.operator >= 0) & (events.category[launches.work] == Category.KERNEL)
    work, operator = launches.work[owned], launches.operator[owned]
    inside = facts.measured[operator]
    work, operator = work[inside], operator[inside]
    first, kind = distinct_rows(events.name_code[operator], events.dims_code[operator], events.types_code[operator])
    found = {number: one for number, row in enumerate(operator[first].tolist()) if (one := _operands_of(facts, row))}
    if not found:
        return None
    number = np.full(len(first), -1, dtype=np.int64)
    number[list(found)] = np.arange(len(found))
    known = number[kind] >= 0
    return _Kernels(work[known], operator[known], tuple(found.values()), number[kind][known])


def _operands_of(facts: Facts, row: int) -> _Operands | None:
    dims = facts.trace.events.dims_code[row]
    product = product_of(facts.trace.name_of(row), facts.trace.text_of(dims)) if dims >= 0 else None
    if product is None:
        return None
    dtype = dtype_of(facts, row)
    return _Operands(product, ITEM_BYTES[dtype], _RATES[dtype]) if dtype in _RATES else None


def _load_little(facts: Facts, kernels: _Kernels) -> Bools:
    """Which of them load less than 16 bytes at once, or do without the tile units because of it."""
    names = facts.trace.where_name
    fewer = np.zeros(len(kernels.work), dtype=bool)
    for item_bytes in {one.item_bytes for one in kernels.operands}:
        mine = kernels.tell(lambda one: one.item_bytes) == item_bytes
        unit = aligned_elements(item_bytes)
        fewer |= mine & names(partial(_loads_fewer, unit))[kernels.work]
        by_tensile = mine & names(partial(_tensile_loads_fewer, unit))[kernels.work]
        fewer |= by_tensile & kernels.tell(lambda one: bool(one.odd_sizes))
    without = facts.trace.matching(_WITHOUT_TILES)[kernels.work]
    fewer |= without & kernels.tell(lambda one: bool(one.odd_sizes))
    return fewer


def _loads_fewer(elements: int, name: str) -> bool:
    """Whether the name is that of a kernel on tiles that loads fewer elements at once."""
    return _OF_TILES.search(name) is not None and any(int(each) < elements for each in _ALIGNMENTS.findall(name))


def _tensile_loads_fewer(elements: int, name: str) -> bool:
    found = _TENSILE.search(name)
    return found is not None and min(map(int, found.groups())) < elements


def _reached_share(facts: Facts, others: _Kernels, rates: Rates) -> dict[str, float]:
    """By rate, the share of the roofline that the other large products of these steps reach."""
    _, first, number = np.unique(others.operator, return_index=True, return_inverse=True)
    took_ns = np.bincount(number, facts.trace.events.duration_ns[others.work], len(first))
    calls = others.take(first)
    least_ns = calls.tell(lambda one: one.least_ns(rates))
    reached = {}
    for rate in _RATES.values():
        mine = (least_ns >= _LARGE_NS) & (calls.tell(lambda one: one.rate) == rate)
        if mine.any():
            reached[rate] = min(1.0, float(least_ns[mine].sum() / took_ns[mine].sum()))
    return reached


def _as_aligned(facts: Facts, slow: _Kernels, rates: Rates, reached: dict[str, float]) -> Edit:
    """Each takes what an aligned one would; several kernels of one operator share that."""
    took_ns = facts.trace.events.duration_ns[slow.work]
    _, number, count = np.unique(slow.operator, return_inverse=True, return_counts=True)
    least_ns = slow.tell(lambda one: one.least_ns(rates, is_padded=True) / reached.get(one.rate, achievable(rates)))
    kept_ns = np.where(least_ns > 0, least_ns / count[number], took_ns)
    return shrink_work(slow.work, np.minimum(kept_ns, took_ns).astype(np.int64), _UNCERTAINTY)
