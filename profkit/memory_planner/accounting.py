"""From the log of storages to the memory peak: how much was in use, when, and what for."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, replace

from profkit.memory_planner.allocator import Block, CachingAllocator
from profkit.memory_planner.plan import ACTIVATIONS, BACKWARD, CATEGORIES, FORWARD, TEMPORARIES, WORKSPACE, Usage
from profkit.memory_planner.storages import StorageLog

_CUBLAS_BYTES = {"cuda": 8_519_680, "hopper": 32 << 20}
"""Each thread that calls cuBLAS gets this much from PyTorch's allocator (aten/src/ATen/cuda/CublasHandlePool.cpp).
Autograd runs in a separate thread."""
_CUBLASLT_BYTES = 1 << 20
"""A layer with a bias also initialises cuBLASLt; seen once per process in an H100's snapshot."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The allocations and frees in order, with the size and category of each storage. Events are as in `StorageLog`."""

    sizes: tuple[int, ...]
    categories: tuple[str, ...]
    events: tuple[int, ...]
    phases: tuple[tuple[int, str], ...]
    born: tuple[str, ...]
    is_cuda: bool

    def resized(self, sizes: Mapping[int, int]) -> Timeline:
        """The same timeline with other sizes for some storages."""
        return replace(self, sizes=tuple(sizes.get(number, size) for number, size in enumerate(self.sizes)))

    def usage(self) -> Usage:
        """The peak, and what is in use at that moment. On a GPU the sizes are those of the allocator's blocks."""
        taken, reserved = self._blocks() if self.is_cuda else (self.sizes, 0)
        current = peak = peak_at = 0
        by_phase: dict[str, int] = {}
        phase, bounds = "", dict(self.phases)
        for at, event in enumerate(self.events):
            if at in bounds:
                phase = bounds[at]
                by_phase[phase] = max(by_phase.get(phase, 0), current)
            current += taken[event - 1] if event > 0 else -taken[-event - 1]
            if phase:
                by_phase[phase] = max(by_phase[phase], current)
                if current > peak:
                    peak, peak_at = current, at
        starts = [start for start, _ in self.phases]
        when = self.phases[max(bisect.bisect_right(starts, peak_at) - 1, 0)][1]
        return Usage(peak, when, self._by_category(taken, peak_at), by_phase, reserved)

    def _by_category(self, taken: tuple[int, ...], until: int) -> dict[str, int]:
        alive: set[int] = set()
        for event in self.events[: until + 1]:
            (alive.add if event > 0 else alive.discard)(abs(event) - 1)
        sums = dict.fromkeys(CATEGORIES, 0)
        for number in alive:
            sums[self.categories[number]] += taken[number]
        return sums

    def _blocks(self) -> tuple[tuple[int, ...], int]:
        """The block size of each storage, and the allocator's reserved total."""
        allocator = CachingAllocator()
        held: dict[int, Block] = {}
        taken = [0] * len(self.sizes)
        for event in self.events:
            number = abs(event) - 1
            if event > 0 and self.sizes[number]:
                held[number] = allocator.take(self.sizes[number])
                taken[number] = held[number].size
            elif event < 0 and number in held:
                allocator.give_back(held.pop(number))
        return tuple(taken), allocator.reserved_bytes


def timeline_of(log: StorageLog, known: Mapping[int, str], device: str) -> Timeline:
    """``known`` are the categories given by the model and the optimizer. What the forward pass leaves for the backward
    pass and what checkpointing recomputes are activations; the rest are temporaries."""
    bounds = dict(log.phases)
    born, phase = [""] * len(log.sizes), ""
    alive: set[int] = set()
    left: set[int] = set()
    for at, event in enumerate(log.events):
        phase = bounds.get(at, phase)
        if bounds.get(at) == BACKWARD:
            left |= alive
        if event > 0:
            born[event - 1] = phase
            alive.add(event - 1)
        else:
            alive.discard(-event - 1)
    categories = [known.get(number) or _category(number, born[number], left, log) for number in range(len(log.sizes))]
    sizes, events, phases = list(log.sizes), list(log.events), list(log.phases)
    if device != "cpu":
        _add_workspaces(log, device, sizes, events, phases)
        added = len(sizes) - len(log.sizes)
        categories += [WORKSPACE] * added
        born += [""] * added
    return Timeline(tuple(sizes), tuple(categories), tuple(events), tuple(phases), tuple(born), device != "cpu")


def _category(number: int, born: str, left: set[int], log: StorageLog) -> str:
    return ACTIVATIONS if (born == FORWARD and number in left) or number in log.recomputed else TEMPORARIES


def _add_workspaces(
    log: StorageLog, device: str, sizes: list[int], events: list[int], phases: list[tuple[int, str]]
) -> None:
    """A thread takes its workspace at its first matrix product and keeps it."""
    size = _CUBLAS_BYTES[device]
    wanted = {FORWARD: (size, _CUBLASLT_BYTES), BACKWARD: (size,)}
    for phase, at in sorted(log.products.items(), key=lambda item: -item[1]):
        for one in wanted.get(phase, ()):
            sizes.append(one)
            events.insert(at, len(sizes))
            phases[:] = [(start + (start > at), name) for start, name in phases]
