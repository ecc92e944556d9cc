"""The caching allocator of the GPU's memory, as `torch.cuda.memory` asks it. Nothing else here talks to it, so that
tests can do without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.program.guard import uncompiled

_HISTORY = ("_record_memory_history_impl", "_record_memory_history_legacy")
"""What `torch.cuda.memory._record_memory_history` passes on to, by the kind of its first argument."""
OnFailure = Callable[[int, int, int, int], None]
"""Told of a request that found no room: the device, the bytes asked for, all memory of the device or as much as the
process may have, and how much of that is free."""


class CudaAllocator:
    """Most of its calls are private: any may be gone or refuse, as another allocator may have been plugged in, and then
    raises. None waits for the device."""

    def __init__(self) -> None:
        self._replaced: dict[str, Callable[..., object]] = {}

    @property
    def is_used(self) -> bool:
        """Whether the program has begun to use CUDA."""
        return cuda_is_used()

    def devices(self) -> range:
        return range(torch.cuda.device_count())

    def total_bytes(self, device: int) -> int:
        return int(torch.cuda.get_device_properties(device).total_memory)

    def limit_bytes(self, device: int) -> int:
        """How much the process may have of the device; 0 for all of it, and where this PyTorch does not say."""
        tell = getattr(torch.cuda, "get_per_process_memory_fraction", None)
        fraction = 1.0 if tell is None else float(tell(device))
        return int(fraction * self.total_bytes(device)) if fraction < 1 else 0

    def counts(self, device: int) -> Mapping[str, Any]:
        """The counts behind `torch.cuda.memory_stats`, which takes four times as long to flatten them."""
        counts: Mapping[str, Any] = torch._C._cuda_memoryStats(device)
        return counts

    def keeps_history(self) -> bool:
        """Whether the program records the history of its memory itself."""
        return bool(torch._C._cuda_isHistoryEnabled())

    def begin_history(self, most_entries: int, on_program: Callable[[], None]) -> None:
        """Record the last allocations and frees with the Python frames that led to them. ``on_program`` is called when
        the program asks for the same, or for its end."""
        memory = torch.cuda.memory
        record = getattr(memory, _HISTORY[0])
        record("all", context="all", stacks="python", max_entries=most_entries)
        for name in _HISTORY:
            original = self._replaced[name] = getattr(memory, name)
            setattr(memory, name, _telling(original, on_program))

    def stop_watching(self) -> None:
        """The program's own calls are no longer told."""
        for name, original in self._replaced.items():
            setattr(torch.cuda.memory, name, original)
        self._replaced.clear()

    def end_history(self) -> None:
        """Record no more, and forget what was recorded."""
        self.stop_watching()
        torch.cuda.memory._record_memory_history(None)

    def snapshot(self) -> object:
        """What is allocated now, and the history if one is recorded: lists, dictionaries, texts and numbers."""
        return torch.cuda.memory._snapshot()

    def attach(self, on_failure: OnFailure) -> None:
        """Tell of every request that finds no room, also of those that the program gets over. There is no way back."""
        torch._C._cuda_attach_out_of_memory_observer(on_failure)  # type: ignore[attr-defined]  # private


def _telling(original: Callable[..., object], on_program: Callable[[], None]) -> Callable[..., object]:
    @uncompiled
    def tell(*arguments: Any, **options: Any) -> object:
        on_program()
        return original(*arguments, **options)

    return tell
