"""What a call is given and what it gives, as values that are equal if a later call may use the earlier result."""

from __future__ import annotations

import ctypes
import io
import marshal
import random
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from datetime import date, timedelta
from datetime import time as clock_time
from decimal import Decimal
from fractions import Fraction
from itertools import chain, islice
from pathlib import PurePath
from types import BuiltinFunctionType, EllipsisType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import TensorBase
from torch.multiprocessing.reductions import StorageWeakRef

_PLAIN = (int, bool, bytes, complex, type(None), EllipsisType, torch.dtype, torch.device, torch.layout, torch.Size)
_VALUES = (PurePath, Decimal, Fraction, date, clock_time, timedelta, UUID)
"""Objects that are equal if their values are, and never change."""
_NAMED = (type, FunctionType, BuiltinFunctionType, ModuleType, np.dtype)
_MOVING = (io.IOBase, torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
"""Objects that each use changes, although they look the same before and after."""
_CONTAINERS = (list, tuple, dict, set, frozenset)
_MOST_ELEMENTS = 20_000
"""Of a container of plain values that are compared one by one: 0.2 ms. A longer one is the data, which stays the same
object."""
_MOST_NESTED = 4
_MOST_PARTS = 300
"""Values inside one argument or result that are looked at, each some microseconds."""
_ARGUMENT_BYTES, _RESULT_BYTES = 64 << 10, 1 << 20
"""Of numbers that are compared as a whole: tensors that are given are mostly known by their memory and version."""
_PIECES, _PIECE_BYTES = 64, 1 << 10
"""Of larger results."""
_MOST_TENSORS = 1000
"""Of a module: its parameters and buffers, whose versions tell whether it is what it was."""


_Describe = Callable[..., Hashable]


class Undescribed(Exception):
    """The value cannot be compared."""


class Describer:
    """Describes arguments (`argument`) and results (`result`). `token` is the number of an object, None if it cannot
    have one. Numbers are never used again, unlike addresses."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._memories: dict[int, tuple[StorageWeakRef, int]] = {}
        self._last = self._parts = 0
        self._by_kind: tuple[tuple[type | tuple[type, ...], _Describe], ...] = (
            (Tensor, self._tensor),
            (np.ndarray, self._array),
            (np.generic, self._number),
            ((*_NAMED, MethodType), self._named),
            (_CONTAINERS, self._container),
        )

    def argument(self, value: Any, read: Collection[str] | None = None) -> Hashable:
        """Raises `Undescribed` for what changes by being used. Of an object only attributes that are ``read`` count, if
        these are known."""
        self._parts = 0
        if read is not None and isinstance(inside := getattr(value, "__dict__", None), dict):
            return type(value), self.token(value), *[self._describe(inside[name], 1, is_result=False) for name in read]
        return self._describe(value, 0, is_result=False)

    def result(self, value: object) -> Hashable:
        """By what it holds, even if it is another object. Raises `Undescribed` if that cannot be told."""
        self._parts = 0
        return self._describe(value, 0, is_result=True)

    def identity(self, value: object) -> Hashable:
        """Which object it is, whatever has become of it; plain values and tensors as arguments."""
        number = None if isinstance(value, (*_PLAIN, str, float, Tensor, np.ndarray)) else self.token(value)
        return self.argument(value) if number is None else number

    def token(self, value: object) -> int | None:
        known = self._objects.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        try:
            reference = weakref.ref(value)
        except TypeError:
            return None
        self._last += 1
        self._objects[id(value)] = reference, self._last
        return self._last

    def _describe(self, value: Any, depth: int, *, is_result: bool) -> Hashable:
        kind = type(value)
        if kind in _PLAIN or kind is str:
            return kind, value
        if kind is float:
            return kind, value.hex()
        if isinstance(value, _VALUES):
            return kind, value
        self._parts += 1
        if isinstance(value, _MOVING) or hasattr(kind, "__next__"):
            raise Undescribed
        describe = next((one for kinds, one in self._by_kind if isinstance(value, kinds)), self._object)
        return describe(value, depth, is_result=is_result)

    def _number(self, value: Any, _depth: int, **_: bool) -> Hashable:
        return type(value), value.tobytes()

    def _named(self, value: Any, _depth: int, **_: bool) -> Hashable:
        if isinstance(value, MethodType):
            return "method", self.token(value.__func__), self.token(value.__self__)
        return "named", id(value)

    def _tensor(self, tensor: Any, _depth: int, *, is_result: bool) -> Hashable:
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            raise Undescribed
        if is_result and tensor.requires_grad:
            raise Undescribed
        shape = tensor.dtype, tuple(tensor.shape), tensor.requires_grad, tensor.device
        size = tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu" and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
            if size <= (_RESULT_BYTES if is_result else _ARGUMENT_BYTES):
                return "numbers", *shape, hash(ctypes.string_at(TensorBase.data_ptr(tensor), size)) if size else 0
            if is_result:
                return "pieces", *shape, _pieces(TensorBase.data_ptr(tensor), size)
        if tensor.is_inference():
            raise Undescribed
        return "memory", *shape, self._memory(tensor), tensor._version, tensor.storage_offset(), tensor.stride()

    def _memory(self, tensor: Tensor) -> int:
        storage = TensorBase.untyped_storage(tensor)
        known = self._memories.get(storage._cdata)
        if known is None:
            self._last += 1
            reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch gives no types here
            known = self._memories[storage._cdata] = reference, self._last
        return known[1]

    def _array(self, array: Any, _depth: int, *, is_result: bool) -> Hashable:
        if array.dtype.hasobject or type(array) is not np.ndarray:
            raise Undescribed
        shape = array.dtype.str, array.shape
        if array.nbytes <= (_RESULT_BYTES if is_result else _ARGUMENT_BYTES):
            return "numbers", *shape, hash(array.tobytes())
        if not array.flags.c_contiguous:
            raise Undescribed
        pieces = _pieces(array.ctypes.data, array.nbytes)  # NumPy counts no writes
        return ("pieces", *shape, pieces) if is_result else ("memory", *shape, array.ctypes.data, pieces)

    def _container(self, value: Any, depth: int, *, is_result: bool) -> Hashable:
        if len(value) + sum(len(one) for one in value if isinstance(one, _CONTAINERS)) <= _MOST_ELEMENTS:
            try:  # plain values all the way down; later versions of the format write references
                return type(value), hash(marshal.dumps(value, 2))
            except ValueError:
                pass
        elif not is_result:
            return type(value), id(value), len(value)
        if depth >= _MOST_NESTED or self._parts + len(value) > _MOST_PARTS or isinstance(value, set | frozenset):
            raise Undescribed
        items: Iterator[Any] = chain.from_iterable(dict.items(value)) if isinstance(value, dict) else iter(value)
        return type(value), tuple([self._describe(one, depth + 1, is_result=is_result) for one in items])

    def _object(self, value: Any, depth: int, *, is_result: bool) -> Hashable:
        inside = getattr(value, "__dict__", None)
        number = None if is_result else self.token(value)
        if is_result and not isinstance(inside, Mapping):
            raise Undescribed
        if isinstance(value, nn.Module):
            return type(value), number, value.training, _versions(value)
        if not isinstance(inside, Mapping) or depth >= _MOST_NESTED or self._parts + len(inside) > _MOST_PARTS:
            if number is None:
                raise Undescribed
            return type(value), number
        try:
            held = tuple([(name, self._describe(one, depth + 1, is_result=is_result)) for name, one in inside.items()])
        except RecursionError:
            raise Undescribed from None
        return type(value), number, held


def _versions(module: nn.Module) -> Hashable:
    tensors = list(islice(chain(module.parameters(), module.buffers()), _MOST_TENSORS))
    return len(tensors), sum(0 if tensor.is_inference() else tensor._version for tensor in tensors)


def _pieces(start: int, size: int) -> int:
    step = max((size - _PIECE_BYTES) // (_PIECES - 1), 1)
    return hash(tuple([ctypes.string_at(start + piece * step, _PIECE_BYTES) for piece in range(_PIECES)]))
