"""The tensors in a batch, and their numbers as they lie in memory: read without running any code of the program or an
operator of PyTorch, which would be recorded."""

from __future__ import annotations

import ctypes
from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._C import TensorBase

from profkit.source.attributes import attributes_of

MOST_TENSORS = 24
_MOST_NESTED = 3
_MOST_BYTES = 64 << 20
"""Larger tensors are not batches of rows with lengths, and a copy from a device would take milliseconds."""
_MOST_DIMS = 5
_BITS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}
"""By the size of a number. The same bits are the same number; two zeros may differ."""


def tensors_in(given: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """The tensors that may be batches of rows, with the last name that leads to each; runs no code of the program."""
    if depth > _MOST_NESTED:
        return
    kind = type(given)
    if kind is Tensor:
        if _is_readable(given):
            yield name, given
        return
    inside: Iterable[tuple[Any, Any]]
    if isinstance(given, UserDict):
        given = attributes_of(given).get("data")
    if isinstance(given, dict):
        inside = list(dict.items(given))[:MOST_TENSORS]
    elif isinstance(given, list | tuple):
        inside = [(name, one) for one in tuple.__iter__(tuple(given[:MOST_TENSORS]))]
    elif isinstance(given, nn.Module) or kind.__module__ == "builtins":
        return
    else:
        inside = list(attributes_of(given).items())[:MOST_TENSORS]
    for key, value in inside:
        yield from tensors_in(value, key if isinstance(key, str) else name, depth + 1)


def _is_readable(tensor: Tensor) -> bool:
    is_plain = tensor.layout is torch.strided and tensor.device.type in ("cpu", "cuda")
    is_plain = is_plain and not tensor.is_quantized and not tensor.dtype.is_complex
    size = TensorBase.numel(tensor) * TensorBase.element_size(tensor)  # a program may replace those of `Tensor`
    return is_plain and 2 <= TensorBase.dim(tensor) <= _MOST_DIMS and 0 < size <= _MOST_BYTES


def read_bits(tensor: Tensor) -> NDArray[Any] | None:
    """The bits of its numbers, which stay PyTorch's; None if it has no memory on the host."""
    size = TensorBase.element_size(tensor)
    try:
        start = TensorBase.data_ptr(tensor)
    except RuntimeError:  # a wrapper, as of `torch.func`
        return None
    if not start or size not in _BITS:
        return None
    strides = [stride * size for stride in TensorBase.stride(tensor)]
    extent = size + sum(stride * (length - 1) for stride, length in zip(strides, tensor.shape, strict=True))
    memory = (ctypes.c_char * extent).from_address(start)
    return np.ndarray(tuple(tensor.shape), dtype=_BITS[size], buffer=memoryview(memory), strides=strides)
