"""Which tensors hold the same numbers, decided by their origin and never by their values.

A tensor's content is identified by its memory, the number of writes to it, and the part of it that the tensor shows.
Memory is identified by PyTorch's storage object: a weak reference to it keeps its address from being reused, while the
memory itself is freed as usual. Two calls of one function on the same inputs make the same value in different places,
which `Identities.give` records. A part or another view of such a value is then the same value too, even if nobody saw
how it was made: `x.mT` is no call.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, UntypedStorage
from torch._C import TensorBase
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter

Identity = tuple[object, ...]
_DEVICES = ("cpu", "cuda")
_LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr)
_STATE = 3
"""So many parts of an identity say which memory it is, and in what state; the others what the tensor shows of it."""
_WHOLE_BYTES = 8 << 10
"""Bytes of a tensor's memory that are compared, in `_PIECES` pieces if it is larger. That takes 5 µs."""
_PIECES = 8
_FOREIGN_BYTES = 4 << 20
"""Memory that PyTorch did not allocate (NumPy's, a loaded file's) is compared as a whole, which takes milliseconds.
Beyond this size it is not followed."""


@dataclass(slots=True, eq=False)
class Memory:
    """Some memory. ``written`` says of each call that wrote to it whether it repeated an earlier call. If it
    ``is_shared``, other code than PyTorch may write to it. ``print`` is what was last seen of memory whose writes
    PyTorch does not count, and ``changes`` how often that was something else."""

    reference: StorageWeakRef | weakref.ref[Tensor]
    number: int
    is_owned: bool
    is_shared: bool = False
    written: list[bool] = field(default_factory=list)
    print: int | None = None
    changes: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether nothing holds it any more."""
        if isinstance(self.reference, weakref.ref):
            return self.reference() is None
        return bool(self.reference.expired())  # type: ignore[no-untyped-call]  # torch gives no types here


class Identities:
    """Numbers the values of tensors. Two tensors with the same number are equal as long as only PyTorch writes to their
    memory, which `is_unchanged` checks."""

    def __init__(self) -> None:
        self._memories: dict[int, Memory] = {}
        self._values: dict[Identity, int] = {}
        self._wholes: dict[Identity, Identity] = {}
        self._views: dict[Identity, int] = {}
        self._prints: dict[Identity, int] = {}
        self._objects: dict[int, Memory] = {}
        self._last = self._numbers = 0

    def __len__(self) -> int:
        return self._numbers

    def memory_of(self, tensor: Tensor) -> Memory:
        if tensor.layout is not torch.strided:
            return self._object_of(tensor)
        storage = TensorBase.untyped_storage(tensor)
        found = self._memories.get(storage._cdata)
        if found is None:
            reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch gives no types here
            found = Memory(reference, self._count(), storage.resizable())
            self._memories[storage._cdata] = found
        return found

    def _object_of(self, tensor: Tensor) -> Memory:
        """A sparse tensor has several pieces of memory, and its own version."""
        found = self._objects.get(id(tensor))
        if found is None or found.reference() is not tensor:  # type: ignore[operator]  # a weak reference can be called
            found = self._objects[id(tensor)] = Memory(weakref.ref(tensor), self._count(), is_owned=True)
        return found

    def _count(self) -> int:
        self._numbers += 1
        return self._numbers

    def identity_of(self, tensor: Tensor) -> Identity | None:
        """None if other code than PyTorch may write to it unnoticed."""
        memory = self.memory_of(tensor)
        if memory.is_shared or not (memory.is_owned or _is_comparable(tensor)):
            return None
        seen = memory.number, len(memory.written), self.version_of(tensor), tensor.dtype, tuple(tensor.shape)
        if tensor.layout is not torch.strided:
            return seen
        return (*seen, TensorBase.storage_offset(tensor), TensorBase.stride(tensor), TensorBase.is_neg(tensor))

    def version_of(self, tensor: Tensor) -> int:
        return version_in(self.memory_of(tensor), tensor)

    def look_again(self, tensors: Iterable[Tensor], *, may_be_written: bool = False) -> None:
        """Compare the memory of those made under `torch.inference_mode` with what was last seen. That shows pieces of
        large ones, so a call that ``may_be_written`` to counts as a write."""
        for tensor in tensors:
            if TensorBase.is_inference(tensor):
                memory, seen = self.memory_of(tensor), _fingerprint(TensorBase.untyped_storage(tensor))
                memory.changes += memory.print is not None and (may_be_written or seen != memory.print)
                memory.print = seen

    def value_of(self, tensor: Tensor) -> int | None:
        identity = self.identity_of(tensor)
        if identity is None:
            return None
        found = self._values.get(identity)
        if found is None and (whole := self._wholes.get(identity[:_STATE])) is not None:
            self._last += 1
            found = self._values[identity] = self._views.setdefault((whole, identity[_STATE:]), self._last)
        if found is None:  # its creation was not seen
            found = self.give(tensor)
            if tensor.device.type == "cpu" and tensor.layout is torch.strided:
                self._prints[identity] = _fingerprint(TensorBase.untyped_storage(tensor))
        return found

    def give(self, tensor: Tensor, value: int | None = None) -> int | None:
        """A tensor was made with an earlier tensor's value or a new one. If it already has a value, that stays."""
        identity = self.identity_of(tensor)
        if identity is None:
            return None
        self._last += value is None
        given = self._values.setdefault(identity, self._last if value is None else value)
        if identity[:_STATE] not in self._wholes and _fills_its_memory(tensor):
            self._wholes[identity[:_STATE]] = given, identity[_STATE:]
        return given

    def is_unchanged(self, tensor: Tensor) -> bool:
        """Whether it still holds what it held when its value was first asked for: NumPy may have written to it. True if
        PyTorch made it since. Memory that turns out to be shared has no value from here on."""
        identity = self.identity_of(tensor)
        known = None if identity is None else self._prints.get(identity)
        if known is not None and known != _fingerprint(TensorBase.untyped_storage(tensor)):
            self.memory_of(tensor).is_shared = True
            return False
        return identity is not None


_is_wrapped: Callable[[Tensor], bool] = getattr(
    getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", lambda _: False
)
"""Whether it stands for others inside `torch.func.vmap` or `grad`: it has no memory of its own."""


def version_in(memory: Memory, tensor: Tensor) -> int:
    """How often a tensor in this memory was written to. For tensors of `torch.inference_mode`, whose writes PyTorch
    does not count, how often `Identities.look_again` saw it changed."""
    return memory.changes if TensorBase.is_inference(tensor) else tensor._version


def is_plain(value: object) -> bool:
    """Whether it is a tensor whose memory and version identify its content. Those of `torch.inference_mode` have no
    version: their memory is looked at, which goes for the host's only."""
    if type(value) not in (Tensor, Parameter):
        return False
    assert isinstance(value, Tensor)
    is_known = value.layout in _LAYOUTS and value.device.type in _DEVICES and not value.dtype.is_complex
    is_counted = not TensorBase.is_inference(value) or (value.device.type == "cpu" and value.layout is torch.strided)
    return is_known and is_counted and not _is_wrapped(value)


def _fills_its_memory(tensor: Tensor) -> bool:
    """Whether it shows each byte of its memory, so that any view of that shows a part of the tensor."""
    if tensor.layout is not torch.strided or not TensorBase.numel(tensor):
        return False
    shown = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, TensorBase.stride(tensor), strict=True))
    held = TensorBase.untyped_storage(tensor).nbytes()
    return shown == TensorBase.numel(tensor) and shown * TensorBase.element_size(tensor) == held


def _is_comparable(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and TensorBase.untyped_storage(tensor).nbytes() <= _FOREIGN_BYTES


def _fingerprint(storage: UntypedStorage) -> int:
    size, start = storage.nbytes(), storage.data_ptr()
    if not size or not start:
        return 0
    if size <= _WHOLE_BYTES or not storage.resizable():
        return hash(ctypes.string_at(start, size))
    length = _WHOLE_BYTES // _PIECES
    places = [start + piece * (size - length) // (_PIECES - 1) for piece in range(_PIECES)]
    return hash(tuple([ctypes.string_at(place, length) for place in places]))
