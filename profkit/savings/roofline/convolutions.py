"""Convolutions, forward and backward, with groups, dilation and transposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from profkit.derive.device.kernel_families import Family
from profkit.savings.cost_models.roofline import convolved, wanted_gradients
from profkit.savings.roofline.calls import BYTES_OF, Call
from profkit.savings.roofline.demand import Demand


class Geometry(Struct, frozen=True):
    """An image (batch, channels, sizes), a weight as PyTorch stores it, the result, the number of groups, and the
    largest gap between a weight's elements."""

    image: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    groups: int
    is_transposed: bool
    dilation: int

    @property
    def operations(self) -> float:
        """2 for each element and each weight that it meets: of the result, or of the image if transposed."""
        over = self.image if self.is_transposed else self.result
        return 2.0 * math.prod(over) * math.prod(self.weight[1:])

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.image[1]


class _Settings(Struct, frozen=True):
    """Places of the arguments; None where the operator has none."""

    first: int
    stride: int
    padding: int
    dilation: int
    transposed: int | None = None
    output_padding: int | None = None
    groups: int = 8


_WHOLE = _Settings(0, 3, 4, 5, 6, 7, 8)
_PLAIN = _Settings(0, 3, 4, 5, None, None, 6)
_TRANSPOSED = _Settings(0, 3, 4, 7, None, 5, 6)
_BACKWARD = _Settings(1, 4, 5, 6, 7, 8, 9)


def geometry_of(call: Call) -> Geometry | None:
    """The sizes of a convolution that ``CONVOLUTION_MODELS`` names; None if they were not recorded or do not fit."""
    found = _PLACES.get(call.name)
    if found is None:
        return None
    image, weight = call.shape(found.first), call.shape(found.first + 1)
    spatial = len(weight) - 2
    if spatial < 1 or len(image) != len(weight):
        return None
    settings = [call.numbers(at, spatial) for at in (found.stride, found.padding, found.dilation)]
    if any(one is None for one in settings) or min(settings[0] or (0,)) < 1:
        return None
    stride, padding, dilation = (one or () for one in settings)
    is_transposed = found is _TRANSPOSED or (found.transposed is not None and call.is_true(found.transposed))
    groups = (call.numbers(found.groups) or (1,))[0]
    if is_transposed:
        sizes = zip(image[2:], padding, dilation, weight[2:], stride, strict=True)
        extra = (call.numbers(found.output_padding, spatial) if found.output_padding is not None else None) or (0,) * 9
        result = [
            (size - 1) * step - 2 * pad + gap * (kernel - 1) + more + 1
            for (size, pad, gap, kernel, step), more in zip(sizes, extra, strict=False)
        ]
        channels = weight[1] * groups
    else:
        result = convolved(image[2:], weight[2:], stride, padding, dilation)
        channels = weight[0]
    if min(result) < 1 or groups < 1:
        return None
    return Geometry(image, weight, (image[0], channels, *result), groups, is_transposed, max(dilation))


def forward(call: Call) -> Demand | None:
    found = geometry_of(call)
    if found is None:
        return None
    kind = call.float_type
    return Demand(
        Family.CONVOLUTION, found.operations, call.size(0, 1, 2), float(math.prod(found.result) * BYTES_OF[kind]), kind
    )


def backward(call: Call) -> Demand | None:
    """The gradients of image and weight have the arithmetic of the forward pass each."""
    found = geometry_of(call)
    if found is None:
        return None
    of_image, of_weight = wanted_gradients(call.values)
    count = of_image + of_weight
    read = count * call.size(0) + of_image * call.size(2) + of_weight * call.size(1)
    written = of_image * call.size(1) + of_weight * call.size(2)
    return Demand(Family.CONVOLUTION, count * found.operations, read, written, call.float_type)


_PLACES: Mapping[str, _Settings] = {
    **{f"aten::{name}": _WHOLE for name in ("convolution", "_convolution", "convolution_overrideable")},
    **{f"aten::conv{spatial}d": _PLAIN for spatial in (1, 2, 3)},
    "aten::conv_transpose1d": _TRANSPOSED,
    "aten::conv_transpose2d": _TRANSPOSED,
    "aten::conv_transpose3d": _TRANSPOSED,
    "aten::convolution_backward": _BACKWARD,
}
CONVOLUTION_MODELS: Mapping[str, Callable[[Call], Demand | None]] = {
    name: backward if place is _BACKWARD else forward for name, place in _PLACES.items()
}
