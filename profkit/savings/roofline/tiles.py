"""Into how many tiles a product is divided, and how many of them a device computes at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from profkit.savings.cost_models.roofline import Product

MULTIPROCESSORS: Mapping[str, int] = {
    "v100": 80,
    "v100s": 80,
    "t4": 40,
    "a10": 72,
    "a10g": 80,
    "a30": 56,
    "a40": 84,
    "a100": 108,
    "l4": 58,
    "l40": 142,
    "l40s": 142,
    "h100": 132,
    "h200": 132,
    "gh200": 132,
    "h20": 78,
    "b200": 148,
    "mi100": 120,
    "mi210": 104,
    "mi250x": 110,
    "mi300x": 304,
    "mi325x": 304,
    "mi355x": 256,
}
"""Streaming multiprocessors or compute units, by a word of the name: from the makers' data sheets and architecture
white papers. An H100 for PCIe has 114, which changes no judgement here. An MI250X is two devices."""
_SIZES = re.compile(
    r"_MT(\d+)x(\d+)x|tilesize(\d+)x(\d+)x|nvjet_\w+?_(\d+)x(\d+)_|(?<![\dx])(\d{2,3})x(\d{2,3})(?![\d])"
)
"""In the names of Tensile's, cuDNN's, cuBLAS's and CUTLASS's kernels."""
_SPLIT = re.compile(r"_GSU(\d+)")
"""Tensile splits the sum into so many parts, which more tiles compute."""
_SPLITS_UNTOLD = re.compile(r"split_?k|StreamK|_SK[1-9]|_GSU0", re.IGNORECASE)
"""Others do not say into how many."""


class Tiling(Struct, frozen=True):
    """A tile's sizes and how many of the sum's parts are computed apart."""

    rows: int
    columns: int
    parts: int

    def count(self, product: Product) -> int:
        """Tiles of the result, in the orientation that has more."""
        ways = ((self.rows, self.columns), (self.columns, self.rows))
        return self.parts * max(
            product.batch * math.ceil(product.rows / rows) * math.ceil(product.columns / columns)
            for rows, columns in ways
        )


def tiling_of(kernels: tuple[str, ...]) -> Tiling | None:
    """What the names of a product's kernels tell; None if they do not tell it, or not into how many parts."""
    if any(_SPLITS_UNTOLD.search(name) for name in kernels):
        return None
    for name in kernels:
        if found := _SIZES.search(name):
            rows, columns = (int(size) for size in found.groups() if size is not None)
            split = _SPLIT.search(name)
            return Tiling(rows, columns, int(split[1]) if split else 1)
    return None


def multiprocessors(device: str) -> int | None:
    """How many tiles the device computes at once at least; None if the device is not known."""
    words = re.findall(r"[a-z0-9]+", device.lower())
    return next((MULTIPROCESSORS[word] for word in words if word in MULTIPROCESSORS), None)
