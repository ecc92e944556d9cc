"""How many backward passes a program has, and which losses its first ones begin with.

Not every program trains by one of PyTorch's optimizers, or prints what it loses. Each loss is copied where it lies; its
number is read when the program is over, so nothing waits for a device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_MOST_LOSSES = 4
"""Later ones have rounded differently for so long that they tell little."""
_FINE = 1e-5
"""The rounding of a type, at most: two sums in bfloat16 may differ by a percent."""


class Passes:
    """The backward passes of a run. One within another, as of a checkpoint, is part of it."""

    def __init__(self, first: Callable[[], None]) -> None:
        self.count = 0
        self._first, self._losses, self._inside = first, list[Any](), False

    def watch(self) -> None:
        """From now on. ``first`` is called before the first pass."""
        import torch

        backward: Any = torch.autograd.backward

        @functools.wraps(backward)
        def watched(tensors: Any, *given: Any, **named: Any) -> Any:
            if self._inside:
                return backward(tensors, *given, **named)
            self._note(tensors)
            self._inside = True
            try:
                return backward(tensors, *given, **named)
            finally:
                self._inside = False

        torch.autograd.backward = watched

    def _note(self, tensors: Any) -> None:
        self.count += 1
        if self.count == 1:
            self._first()
        if self.count <= _MOST_LOSSES:
            self._losses.append(_copied(tensors))

    def losses(self) -> list[float | None]:
        """The first ones; None for those that have no number, or one of few bits."""
        return [_number(one) for one in self._losses]


def _copied(tensors: Any) -> Any:
    """The sum of a loss, where it lies; None if it cannot be had."""
    import torch

    with suppress(Exception), torch.no_grad():  # a loss may be a sharded or meta tensor, or a sequence of them
        return tensors.detach().sum(dtype=torch.float64) if torch.finfo(tensors.dtype).eps < _FINE else None
    return None


def _number(loss: Any) -> float | None:
    with suppress(Exception):  # of a device that has failed since
        number = float(loss)
        return number if math.isfinite(number) else None
    return None
