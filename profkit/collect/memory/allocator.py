"""PyTorch's caching allocator of the GPU's memory. Only this file talks to it, so that tests need no GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.program.guard import uncompiled
from profkit.collect.program.inductor import without_inductor

_HISTORY = ("_record_memory_history_impl", "_record_memory_history_legacy")
"""The functions behind `torch.cuda.memory._record_memory_history`, one for each kind of its first argument."""
OnFailure = Callable[[int, int, int, int], None]
"""Called when a request finds no room, with the device, the requested bytes, the memory of the device (or the process's
limit), and how much of that is free."""


class CudaAllocator:
    """Most of its calls are private. Any of them may be missing, or fail with a plugged-in allocator, and then raises.
    None waits for the device."""

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
        """How much of the device the process may use; 0 for all of it, or if this PyTorch does not say."""
        get_fraction = getattr(torch.cuda, "get_per_process_memory_fraction", None)
        fraction = 1.0 if get_fraction is None else float(get_fraction(device))
        return int(fraction * self.total_bytes(device)) if fraction < 1 else 0

    def counts(self, device: int) -> Mapping[str, Any]:
        """The counts behind `torch.cuda.memory_stats`, which takes four times as long because it flattens them."""
        counts: Mapping[str, Any] = torch._C._cuda_memoryStats(device)
        return counts

    def keeps_history(self) -> bool:
        """Whether the program records the history of its memory itself."""
        return bool(torch._C._cuda_isHistoryEnabled())

    def begin_history(self, most_entries: int, on_program: Callable[[], None]) -> None:
        """Record the latest allocations and frees with their Python frames. ``on_program`` is called when the program
        itself begins or ends such a recording."""
        memory = torch.cuda.memory
        record = getattr(memory, _HISTORY[0])
        record("all", context="all", stacks="python", max_entries=most_entries)
        for name in _HISTORY:
            original = self._replaced[name] = getattr(memory, name)
            setattr(memory, name, _announcing(original, on_program))

    def stop_watching(self) -> None:
        """Stop announcing the program's own calls."""
        for name, original in self._replaced.items():
            setattr(torch.cuda.memory, name, original)
        self._replaced.clear()

    def end_history(self) -> None:
        """Stop recording, and discard the history."""
        self.stop_watching()
        torch.cuda.memory._record_memory_history(None)

    def snapshot(self) -> object:
        """The current allocations, and the history if one is recorded: lists, dictionaries, texts and numbers."""
        with without_inductor():
            return torch.cuda.memory._snapshot()

    def attach(self, on_failure: OnFailure) -> None:
        """Report every request that finds no room, even if the program recovers. This cannot be undone."""
        torch._C._cuda_attach_out_of_memory_observer(on_failure)  # type: ignore[attr-defined]  # private


def _announcing(original: Callable[..., object], on_program: Callable[[], None]) -> Callable[..., object]:
    @uncompiled
    def announce(*arguments: Any, **options: Any) -> object:
        on_program()
        return original(*arguments, **options)

    return announce
