"""Matrices that a GPU's fastest kernels cannot load, and how long products of them take.

A thread loads 16 bytes at once if each row of a matrix begins at a multiple of 16 bytes: 8 elements of 16 bits, 4 of
TF32 (NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements"). Otherwise the libraries choose
kernels that load element by element.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from profkit.run.directory import Rates
from profkit.savings.cost_models.roofline import Product

LOADED_BYTES = 16
PADDED_BYTES = 128
"""The same guide: with multiples of 128 bytes an A100 is fastest."""
ALIGNED_SHARE = 0.75
"""The share of its peak rate that a large product reaches: 0.69 to 0.83 in two compiled transformers in bfloat16 with
widths of 768 to 4,096 on an H100."""
_MAX_ACHIEVABLE: Mapping[str, float] = {"mi300x": 0.54, "mi325x": 0.54}
"""The same on devices whose power limit leaves less: 708 of 1,307 TFLOP/s in bfloat16 (AMD, Measuring Max-Achievable
FLOPs, part 2, 2025)."""
_BY_ELEMENT = 0.116
"""The share of the 16-bit peak rate that kernels reach which load element by element: 97 and 142 TFLOP/s of 989 for
products with 50,257 columns (H100, bfloat16), together as long as if both had 115. TF32 loads as many elements, no more
bytes at once, so it reaches the same number of operations: GPT-2 with that vocabulary gained 51 % by TF32, where 60 %
would have been possible if such products kept up with the others."""
_SLOW_KINDS: Mapping[str, str] = {"tf32": "bfloat16", "bfloat16": "bfloat16", "float16": "float16"}


def achievable(rates: Rates) -> float:
    """The share of its peak rate that the device reaches in large products."""
    words = re.findall(r"[a-z0-9]+", rates.device.lower())
    return next((share for name, share in _MAX_ACHIEVABLE.items() if name in words), ALIGNED_SHARE)


def aligned_elements(item_bytes: int) -> int:
    """A row's length has to be a multiple of this many elements."""
    return max(1, LOADED_BYTES // item_bytes)


def is_misaligned(product: Product, item_bytes: int) -> bool:
    """Whether rows of these matrices, or of those of the backward pass, have a length that is no such multiple. The
    number of rows does not matter: no row has that length, forward or backward."""
    unit = aligned_elements(item_bytes)
    return bool(product.inner % unit or product.columns % unit)


def misaligned_least_ns(operations: float, rates: Rates, kind: str) -> float:
    """The least time of a product whose matrices are loaded element by element; 0 if no such rate is known."""
    peak = rates.products.get(_SLOW_KINDS.get(kind, ""))
    return operations / (_BY_ELEMENT * peak) * 1e9 if peak else 0.0


def padded(size: int, item_bytes: int) -> int:
    """The next multiple that fills whole lines of memory."""
    unit = PADDED_BYTES // item_bytes
    return -(-size // unit) * unit
