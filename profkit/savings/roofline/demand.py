"""What one call demands of the device, whatever its kind: operations and bytes.

The formulas for operations are those of ``torch.utils.flop_counter`` where it has one, except in two places: a causal
mask leaves out the scores above the diagonal, and the gradient of a weight in groups has as many operations as the
forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from profkit.derive.device.kernel_families import Family
from profkit.run.directory import Rates

PRODUCTS = frozenset((Family.PRODUCT, Family.CONVOLUTION, Family.ATTENTION, Family.EXPERTS))
"""Kinds whose operations run on the units for matrix products. All others are bound by memory on any known device."""

USUAL_SHARES: Mapping[Family, float] = {Family.CONVOLUTION: 0.3, Family.ATTENTION: 0.35}
"""What large launches with nothing wrong reach of the possible, where that is less than half: convolutions of bfloat16
0.32 with the channels first, attention with heads of 64 0.37 (recorded on an H100)."""


class Demand(Struct, frozen=True):
    """Floating-point operations of products, bytes read once and written once, and the type that sets the rate."""

    kind: Family
    operations: float
    read_bytes: float
    written_bytes: float
    type: str

    @property
    def bytes(self) -> float:
        return self.read_bytes + self.written_bytes

    def moving_ns(self, rates: Rates) -> float:
        """How long the memory takes."""
        return self.bytes / rates.bandwidth * 1e9

    def computing_ns(self, rates: Rates, rate: str) -> float:
        """How long the units for products take; 0 if their rate is not known or there are none to compute."""
        peak = rates.products.get(rate)
        return self.operations / peak * 1e9 if peak and self.kind in PRODUCTS else 0.0

    def least_ns(self, rates: Rates, rate: str) -> float:
        """The roofline: no launch takes less, unless caches hold its tensors."""
        return max(self.moving_ns(rates), self.computing_ns(rates, rate))

    def is_memory_bound(self, rates: Rates, rate: str) -> bool:
        return self.moving_ns(rates) >= self.computing_ns(rates, rate)
