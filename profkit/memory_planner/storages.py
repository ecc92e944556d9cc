"""A log of every storage that operators make, from its creation to its end.

A dispatch mode above the fake tensors sees each operator's results. It holds storages only by weak references, so
nothing lives longer than in the program itself.

`torch.distributed._tools.mem_tracker.MemTracker` is similar but adds up as it goes. It is private, depends on modules
and its hooks on parameters, knows neither blocks nor segments, and cannot revise a category: a storage that becomes a
gradient is at first a temporary. A log can be read again with other sizes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from profkit.memory_planner.reductions import PROCESSORS, scratch_of

_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "linear", "_addmm_activation"))
"""Operators that initialise cuBLAS on a GPU."""


@dataclass(slots=True)
class StorageLog:
    """``events`` holds each storage's number plus one when it is made, and the negative of that when it is freed.

    ``phases`` are the events before which a phase begins, ``products`` those before which its first matrix product
    runs. ``recomputed`` are storages that the backward pass makes with autograd on, as checkpointing does.
    """

    sizes: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)
    recomputed: set[int] = field(default_factory=set)
    products: dict[str, int] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        return self.phases[-1][1] if self.phases else ""

    def begin(self, phase: str) -> None:
        self.phases.append((len(self.events), phase))

    def add(self, size: int) -> int:
        number = len(self.sizes)
        self.sizes.append(size)
        self.events.append(number + 1)
        return number


class StorageWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """Logs the storages of all tensors that operators return while it is entered."""

    def __init__(self, log: StorageLog, device: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not type it
        self.log = log
        self._processors = PROCESSORS.get(device)
        self._known: dict[int, tuple[int, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        phase = self.log.phase
        if phase not in self.log.products and func.overloadpacket.__name__ in _PRODUCTS:
            self.log.products[phase] = len(self.log.events)
        result = func(*args, **(kwargs or {}))
        self._look_at(result)
        if self._processors is not None:
            for number in [self.log.add(size) for size in scratch_of(func, args, self._processors)]:
                self.log.events.append(-number - 1)
        return result

    def _look_at(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self.number_of(value)
        elif isinstance(value, (tuple, list)):
            for one in value:
                self._look_at(one)

    def number_of(self, tensor: Tensor) -> int:
        """The storage's number in the log; a new storage is entered now."""
        if tensor.layout is not torch.strided:
            parts = [tensor._indices(), tensor._values()]
            return [self.number_of(part) for part in parts][-1]
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            number = self._known[key][0]
            if self.log.sizes[number] == size:
                return number
            self._end(key)
        number = self.log.add(size)
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1:  # inside a backward pass
            self.log.recomputed.add(number)
        self._known[key] = number, weakref.ref(storage, self._ender(key))
        return number

    def numbers_of(self, tensors: Iterable[Tensor]) -> list[int]:
        return [self.number_of(tensor) for tensor in tensors]

    def _ender(self, key: int) -> Callable[[Any], None]:
        return lambda _: self._end(key)

    def _end(self, key: int) -> None:
        number, _ = self._known.pop(key)
        self.log.events.append(-number - 1)
