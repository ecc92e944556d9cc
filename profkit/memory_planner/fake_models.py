"""Making, moving and converting a model whose tensors are fake.

Constructors read small constants: ``[rate.item() for rate in torch.linspace(0, 0.1, depth)]`` is how models spread
their drop rates. A tensor without data cannot answer, so results that depend only on small constants are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MAKERS = frozenset(("linspace", "arange", "logspace"))
_MOST_ELEMENTS = 4096
"""No model has as many layers."""


class SmallConstants(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """Enter it above the fake tensors' mode."""

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
    """Wraps the making of a model."""
    # This initialiser redraws until all values are within bounds, so it would have to read them.
    truncated = patch.object(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor, create=True)
    with SmallConstants(), truncated:  # type: ignore[no-untyped-call]  # torch does not type it
        yield


def without_data(model: nn.Module, mode: FakeTensorMode) -> None:
    """Replace the model's real tensors with fake ones."""
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


class OneDevice(TorchFunctionMode):
    """While entered, tensors meant for a GPU stay on the CPU, where all fake tensors are."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.cuda:
            return args[0]
        if _names_gpu(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        if func is Tensor.to:
            args = tuple("cpu" if _names_gpu(one) else one for one in args)
        return func(*args, **kwargs)


@contextmanager
def plain_conversions() -> Iterator[None]:
    """While entered, ``model.to()`` gives fake parameters new data, as it does real ones. Otherwise it would swap the
    tensors, which fails if anything holds a weak reference to them."""
    with patch.object(torch.utils, "swap_tensors", _give_data):
        yield


def _give_data(parameter: Tensor, converted: Tensor) -> None:
    parameter.data = converted.data


def _names_gpu(value: Any) -> bool:
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"
