"""What a call is given and what it gives, as values that are equal if a later call may use the earlier result.

Nothing here may run the program's code, not even its ``__class__``, ``__len__`` or ``__getattr__``: so values are told
apart by `type`, types by identity, and containers are read as the built-in ones that they are.
"""

from __future__ import annotations

import ctypes
import io
import marshal
import random
import sys
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import BuiltinFunctionType, EllipsisType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import TensorBase
from torch.multiprocessing.reductions import StorageWeakRef

from profkit.collect.functions.attributes import own_attributes

_PLAIN = (int, bool, complex, type(None), EllipsisType, torch.dtype, torch.device, torch.layout, torch.Size)
_TEXTS = (str, bytes)
_VALUES = (
    *(PurePosixPath, PureWindowsPath, type(Path()), Decimal, Fraction, UUID),
    *(date, datetime, clock_time, timedelta),
)
"""Objects that are equal if their values are, and never change."""
_NAMED = (type, FunctionType, BuiltinFunctionType, ModuleType, np.dtype)
_MOVING = (io.IOBase.__mro__[1], torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
"""Objects that each use changes, although they look the same before and after. `io.IOBase` itself has a metaclass that
asks the program's classes for their hash; what it is built on has none."""
_CONTAINERS = (list, tuple, dict, set, frozenset)
_WRITTEN = frozenset(map(id, (int, bool, float, complex, type(None), EllipsisType, *_TEXTS, *_CONTAINERS)))
"""What `marshal` writes by its value. It would write arrays as well, of any size, but without their shape."""
_MOST_ELEMENTS = 20_000
"""Of a container of plain values that are compared one by one: 0.2 ms. A longer one is the data, which stays the same
object."""
_CHARACTERS = 50
"""So many count as one element: a megabyte of text in all."""
_ELEMENT_BYTES = 64
"""A number with its place in a list or dict."""
_SAMPLE = 64
"""Elements of a longer container that are compared, as its address may have been another one's before."""
_MOST_TEXT = 256
"""Longer text is known by its hash, so that it is not kept."""
_MOST_LEVELS = 64
_MOST_NESTED = 4
_MOST_PARTS = 300
"""Values inside one argument or result that are looked at, each some microseconds."""
_ARGUMENT_BYTES, _RESULT_BYTES = 64 << 10, 1 << 20
"""Of numbers that are compared as a whole: tensors that are given are mostly known by their memory and version."""
_MADE_BYTES = 4 << 20
"""Of an array that is given and that an earlier call gave: it is a new one each time, and 4 MB take 2 ms."""
_PIECES, _PIECE_BYTES = 64, 1 << 10
"""Of larger results."""
_MOST_TENSORS = 1000
"""Of a module: its parameters and buffers, whose versions tell whether it is what it was."""


_Describe = Callable[..., Hashable]
_IS_PLAIN, _IS_TEXT, _IS_VALUE, _IS_CONTAINER = (
    frozenset(map(id, kinds)).__contains__ for kinds in (_PLAIN, _TEXTS, _VALUES, _CONTAINERS)
)
"""By the identity of a type: a metaclass may compare as it likes."""


class Undescribed(Exception):
    """The value cannot be compared."""


class Describer:
    """Describes arguments (`argument`) and results (`result`). `token` is the number of an object, None if it cannot
    have one. Numbers are never used again, unlike addresses.

    ``kept_bytes`` is what keeping the last result would keep in memory; None if its end may be noticed, as that of an
    object whose class has a ``__del__``."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._memories: dict[int, tuple[StorageWeakRef, int]] = {}
        self._made: dict[int, weakref.ref[Any]] = {}
        self._last = self._parts = 0
        self.kept_bytes: int | None = 0
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
        if read is not None and (inside := own_attributes(value)) is not None:
            return (
                id(type(value)),
                self.token(value),
                *[self._describe(inside[name], 1, is_result=False) for name in read],
            )
        return self._describe(value, 0, is_result=False)

    def result(self, value: object) -> Hashable:
        """By what it holds, even if it is another object. Raises `Undescribed` if that cannot be told."""
        self._parts = self.kept_bytes = 0
        return self._describe(value, 0, is_result=True)

    def identity(self, value: object) -> Hashable:
        """Which object it is, whatever has become of it; plain values and tensors as arguments."""
        number = None if issubclass(type(value), (*_PLAIN, str, float, Tensor, np.ndarray)) else self.token(value)
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
        kind, number = type(value), id(type(value))
        if _IS_PLAIN(number):
            return number, value
        if _IS_TEXT(number):
            self._keep(sys.getsizeof(value))
            return _text(value)
        if kind is float:
            return number, value.hex()
        if _IS_VALUE(number):
            return number, str(value)
        self._parts += 1
        if issubclass(kind, _MOVING) or _has(kind, "__next__"):
            raise Undescribed
        describe = next((describe for kinds, describe in self._by_kind if issubclass(kind, kinds)), self._object)
        return describe(value, depth, is_result=is_result)

    def _keep(self, size: int | None) -> None:
        self.kept_bytes = None if self.kept_bytes is None or size is None else self.kept_bytes + size

    def _number(self, value: Any, _depth: int, **_: bool) -> Hashable:
        return id(type(value)), value.tobytes()

    def _named(self, value: Any, _depth: int, **_: bool) -> Hashable:
        self._keep(None)
        if type(value) is MethodType:
            return "method", self.token(value.__func__), self.token(value.__self__)
        return "named", id(value)

    def _tensor(self, tensor: Any, _depth: int, *, is_result: bool) -> Hashable:
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            raise Undescribed
        if is_result and tensor.requires_grad:
            raise Undescribed
        shape = tensor.dtype, tuple(tensor.shape), tensor.requires_grad, tensor.device
        size = TensorBase.numel(tensor) * TensorBase.element_size(tensor)  # a program may replace those of `Tensor`
        held = TensorBase.untyped_storage(tensor).nbytes()
        self._keep(held)
        is_plain = TensorBase.is_contiguous(tensor) and not (TensorBase.is_neg(tensor) or TensorBase.is_conj(tensor))
        if tensor.device.type == "cpu" and is_plain:
            if held < size:  # freed, as by sharded training: there is nothing to read at the address
                raise Undescribed
            if size <= (_RESULT_BYTES if is_result else _ARGUMENT_BYTES):
                return "numbers", *shape, hash(ctypes.string_at(TensorBase.data_ptr(tensor), size)) if size else 0
            if is_result:
                return "pieces", *shape, _pieces(TensorBase.data_ptr(tensor), size)
        if TensorBase.is_inference(tensor):
            raise Undescribed
        return "memory", *shape, self._memory(tensor), tensor._version, *_layout(tensor)

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
        self._keep(_memory_behind(array))
        shape = array.dtype.str, array.shape
        if array.nbytes <= (_RESULT_BYTES if is_result else _MADE_BYTES if self._is_made(array) else _ARGUMENT_BYTES):
            if is_result and array.nbytes > _ARGUMENT_BYTES:
                self._made[id(array)] = weakref.ref(array)
            return "numbers", *shape, hash(array.tobytes())
        if not array.flags.c_contiguous:
            raise Undescribed
        if is_result:
            self._made[id(array)] = weakref.ref(array)
        pieces = _pieces(array.ctypes.data, array.nbytes)  # NumPy counts no writes
        return ("pieces", *shape, pieces) if is_result else ("memory", *shape, array.ctypes.data, pieces)

    def _is_made(self, array: Any) -> bool:
        """Whether a call that was looked at gave the array."""
        known = self._made.get(id(array))
        return known is not None and known() is array

    def _container(self, value: Any, depth: int, *, is_result: bool) -> Hashable:
        kind, base = type(value), next(base for base in _CONTAINERS if issubclass(type(value), base))
        count = base.__len__(value)
        is_noticed = kind.__weakrefoffset__ or _has(kind, "__del__")
        self._keep(None if is_noticed else sys.getsizeof(value) if kind is base else count * _ELEMENT_BYTES)
        size = _plain_size(value) if kind is base else None
        if size is not None and size <= _MOST_ELEMENTS:
            self._keep(size * _ELEMENT_BYTES)
            return id(kind), hash(marshal.dumps(value, 2))  # later versions of the format write references
        items: Iterator[Any] = chain.from_iterable(dict.items(value)) if base is dict else base.__iter__(value)
        if not is_result and (size or count) > _MOST_ELEMENTS:
            every = slice(0, None, count // _SAMPLE + 1)
            sample = base.__getitem__(value, every) if base in (list, tuple) else islice(items, _SAMPLE)
            return id(kind), id(value), count, tuple(map(_sampled, sample))
        if depth >= _MOST_NESTED or self._parts + count > _MOST_PARTS or base in (set, frozenset):
            raise Undescribed
        return id(kind), tuple([self._describe(item, depth + 1, is_result=is_result) for item in items])

    def _object(self, value: Any, depth: int, *, is_result: bool) -> Hashable:
        inside = own_attributes(value)
        number = None if is_result else self.token(value)
        self._keep(None)
        if is_result and inside is None:
            raise Undescribed
        if inside is not None and issubclass(type(value), nn.Module):
            return id(type(value)), number, inside.get("training"), _versions(inside)
        if inside is None or depth >= _MOST_NESTED or self._parts + len(inside) > _MOST_PARTS:
            if number is None:
                raise Undescribed
            return id(type(value)), number
        try:
            held = tuple(
                [(name, self._describe(item, depth + 1, is_result=is_result)) for name, item in inside.items()]
            )
        except RecursionError:
            raise Undescribed from None
        return id(type(value)), number, held


def _has(kind: type, name: str) -> bool:
    return any(name in base.__dict__ for base in kind.__mro__)


def _text(value: str | bytes) -> Hashable:
    if len(value) > _RESULT_BYTES:
        raise Undescribed
    return id(type(value)), (value if len(value) <= _MOST_TEXT else (len(value), hash(value)))


def _plain_size(container: Any) -> int | None:
    """How many elements a container of plain values has inside, counted until there are too many. None if there is
    anything else in it."""
    size, level = 0, [container]
    for _ in range(_MOST_LEVELS):
        size += sum(map(len, level))
        if size > _MOST_ELEMENTS:
            return size
        parts = [[*part, *part.values()] if type(part) is dict else part for part in level]
        items: list[Any] = list(chain.from_iterable(parts))
        if not (kinds := set(map(id, map(type, items)))) <= _WRITTEN:
            return None
        if any(map(_IS_TEXT, kinds)):
            size += sum(len(item) for item in items if _IS_TEXT(id(type(item)))) // _CHARACTERS
        level = [item for item in items if _IS_CONTAINER(id(type(item)))]
        if not level:
            return size
    return None


def _sampled(item: Any) -> Hashable:
    """Of a plain value what it is, of another where it lies."""
    if _IS_TEXT(id(type(item))):
        return len(item), item[:_SAMPLE]
    return item if _IS_PLAIN(id(type(item))) or type(item) is float else id(item)


def _memory_behind(array: Any) -> int | None:
    """The bytes that a view keeps; None if they belong to another kind of object."""
    while type(array.base) is np.ndarray:
        array = array.base
    return int(array.nbytes) if array.base is None else None


def _versions(inside: dict[str, Any]) -> Hashable:
    """Of the tensors of a module with these attributes, and of those inside it."""
    tensors: dict[int, Tensor] = {}
    modules, seen = [inside], {id(inside)}
    while modules and len(tensors) <= _MOST_TENSORS:
        held = modules.pop()
        for name in ("_parameters", "_buffers"):
            tensors.update({id(tensor): tensor for tensor in held.get(name, {}).values() if tensor is not None})
        within = [own_attributes(module) for module in held.get("_modules", {}).values()]
        modules += [more for more in within if more is not None and id(more) not in seen]
        seen.update(map(id, modules))
    counted = list(islice(tensors.values(), _MOST_TENSORS))
    return len(counted), sum(0 if TensorBase.is_inference(tensor) else tensor._version for tensor in counted)


def _layout(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    return int(TensorBase.storage_offset(tensor)), TensorBase.stride(tensor)


def _pieces(start: int, size: int) -> int:
    step = max((size - _PIECE_BYTES) // (_PIECES - 1), 1)
    return hash(tuple([ctypes.string_at(start + piece * step, _PIECE_BYTES) for piece in range(_PIECES)]))
