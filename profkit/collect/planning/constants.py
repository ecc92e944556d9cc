"""Small constants keep their values while a model is made, and what only random numbers would decide is left out.

Constructors read such values: ``[rate.item() for rate in torch.linspace(0, 0.1, depth)]`` is how models spread their
drop rates. On a tensor without data that fails, so what depends on nothing but small constants is computed for real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MAKERS = frozenset(("linspace", "arange", "logspace"))
_MOST_ELEMENTS = 4096
"""More than any model has layers."""


class SmallConstants(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """While entered, above the fake tensors' mode."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if all(_is_small_constant(one) for one in tensors) if tensors else _makes_small_constant(func, args):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def _is_small_constant(tensor: Tensor) -> bool:
    return not isinstance(tensor, FakeTensor) and tensor.numel() <= _MOST_ELEMENTS


def _makes_small_constant(func: Any, arguments: tuple[Any, ...]) -> bool:
    numbers = [one for one in arguments if isinstance(one, (int, float))]
    return func.overloadpacket.__name__ in _MAKERS and all(abs(one) <= _MOST_ELEMENTS for one in numbers)


@contextmanager
def constructing() -> Iterator[None]:
    """While a model is made."""
    # It draws again until all values lie within the bounds, and so asks for them.
    truncated = patch.object(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor, create=True)
    with SmallConstants(), truncated:  # type: ignore[no-untyped-call]  # torch does not type it
        yield


def without_data(model: nn.Module, mode: FakeTensorMode) -> None:
    """Give the model fake tensors in place of those that were computed for real."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        tensors: list[dict[str, Any]] = [module._parameters, module._buffers]
        for held in tensors:
            for name, one in held.items():
                if one is not None and not isinstance(one, FakeTensor):
                    if id(one) not in made:
                        fake = mode.from_tensor(one.detach())
                        made[id(one)] = nn.Parameter(fake, one.requires_grad) if isinstance(one, nn.Parameter) else fake
                    held[name] = made[id(one)]
