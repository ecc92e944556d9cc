"""A model that is moved or converted while it is planned: to a GPU that there may be none of, or to another type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class OneDevice(TorchFunctionMode):
    """While entered, whatever is meant for a GPU stays where all fake tensors are."""

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
    """While entered, ``model.to()`` gives fake parameters new data, as it does with real ones. By itself it swaps the
    tensors, and refuses where anybody holds a weak reference."""
    with patch.object(torch.utils, "swap_tensors", _give_data):
        yield


def _give_data(parameter: Tensor, converted: Tensor) -> None:
    parameter.data = converted.data


def _names_gpu(value: Any) -> bool:
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"
