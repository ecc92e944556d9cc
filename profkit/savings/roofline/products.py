"""Matrix products and layers of experts: their operations and bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from profkit.derive.device.kernel_families import Family
from profkit.savings.cost_models.roofline import Product, product_of
from profkit.savings.roofline.calls import BYTES_OF, FLOATS, Call
from profkit.savings.roofline.demand import Demand

_READ = {"addmm": 3, "baddbmm": 3, "linear": 3, "_addmm_activation": 3}
"""How many inputs a product reads, if not two."""
_WITH_SUMMAND = frozenset(("addmm", "baddbmm", "addmv", "_addmm_activation"))
"""Their first input is added to the product; the factors follow."""
_SCALED_OUTPUTS = {"15": "bfloat16", "5": "float16", "6": "float32"}
"""Numbers of element types in PyTorch (``c10/core/ScalarType.h``)."""
_SCALED_TYPE = 6
"""The input of ``_scaled_mm`` that names the type of its result."""


def sizes_of(call: Call) -> Product | None:
    """The sizes of the matrices; None if the call is no product or its shapes do not fit."""
    plain = call.name.removeprefix("aten::")
    if plain in ("mv", "addmv", "dot"):
        return _by_vector(call, 1 if plain == "addmv" else 0)
    alike = {"_scaled_mm": "mm", "_int_mm": "mm", "_addmm_activation": "addmm"}.get(plain, plain)
    count = 3 if alike in ("addmm", "baddbmm") else 2
    dims = [list(call.shape(at)) for at in range(count)]
    return product_of(f"aten::{alike}", str(dims))


def _by_vector(call: Call, first: int) -> Product | None:
    left, right = call.shape(first), call.shape(first + 1)
    if not left or len(right) != 1 or left[-1] != right[0]:
        return None
    return Product(1, left[0] if len(left) > 1 else 1, left[-1], 1)


def product(call: Call) -> Demand | None:
    sizes = sizes_of(call)
    if sizes is None:
        return None
    plain = call.name.removeprefix("aten::")
    kind = call.type_of(1 if plain in _WITH_SUMMAND else 0)  # a summand may have another
    if kind != "int8" and kind not in FLOATS:  # complex numbers take four times as many, whole ones run elsewhere
        return None
    made = kind
    if plain == "_scaled_mm":
        made = _SCALED_OUTPUTS.get(call.value(_SCALED_TYPE), "bfloat16")
    written = float(sizes.batch * sizes.rows * sizes.columns * BYTES_OF["int32" if kind == "int8" else made])
    return Demand(Family.PRODUCT, sizes.operations, call.size(*range(_READ.get(plain, 2))), written, kind)


def grouped(call: Call) -> Demand | None:
    """``_grouped_mm``: rows that belong to groups, each with a matrix of its own."""
    left, right = call.shape(0), call.shape(1)
    if len(left) != 2 or len(right) != 3 or left[1] != right[1]:
        return None
    rows, inner, columns = left[0], left[1], right[2]
    reached = touched_experts(right[0], rows) / right[0] if right[0] else 0.0
    item = BYTES_OF[call.float_type]
    read = call.size(0) + reached * call.size(1)
    return Demand(Family.EXPERTS, 2.0 * rows * inner * columns, read, float(rows * columns * item), call.float_type)


class Experts(Demand, frozen=True):
    """A layer of experts: ``tokens`` go to ``chosen`` of the ``experts`` each. ``weight_bytes`` is one expert's."""

    tokens: int
    chosen: int
    experts: int
    weight_bytes: float

    @property
    def tokens_per_expert(self) -> float:
        return self.tokens * self.chosen / self.experts


def experts(call: Call) -> Experts | None:
    """A fused layer: tokens, the weights up and down of each expert, and for each token its chosen experts. The
    operators of vLLM, SGLang and AITER take these first and in this order."""
    at = call.tensors
    if len(at) < 4:
        return None
    hidden, up, down, choice = (call.shape(one) for one in at[:4])
    if not (len(hidden) == 2 and len(up) == len(down) == 3 and len(choice) == 2):
        return None
    (tokens, width), (count, _, of_up), (of_down, out, _) = hidden, up, down
    if count != of_down or of_up != width or out != width or choice[0] != tokens or not count or choice[1] > count:
        return None
    weights = math.prod(up[1:]) + math.prod(down[1:])
    pairs = tokens * choice[1]
    weight_bytes = call.size(at[1], at[2]) / count
    moved = call.size(at[0]), touched_experts(count, pairs) * weight_bytes + call.size(at[0], at[3])
    return Experts(
        Family.EXPERTS,
        2.0 * pairs * weights,
        moved[1],
        moved[0],
        call.types[at[1]],
        tokens,
        choice[1],
        count,
        weight_bytes,
    )


def touched_experts(count: int, pairs: int) -> float:
    """How many of the experts get at least one of so many tokens if all are equally likely."""
    return count * (1.0 - (1.0 - 1.0 / count) ** pairs) if count else 0.0


_NAMES = "mm bmm addmm baddbmm linear matmul mv addmv dot inner _scaled_mm _int_mm _addmm_activation"
PRODUCT_MODELS: Mapping[str, Callable[[Call], Demand | None]] = {
    **{f"aten::{name}": product for name in _NAMES.split()},
    "aten::_grouped_mm": grouped,
}
