"""The history of the GPU's memory in the located step: who allocated what, and when it was freed.

A program that records the history itself is left alone. There is only one history, and ending it would end the
program's.
"""

from __future__ import annotations

from pathlib import Path

from profkit.collect.memory.allocator import CudaAllocator
from profkit.collect.memory.snapshots import save_snapshot
from profkit.collect.program.guard import describe
from profkit.run.directory import why_not_written

_MOST_ENTRIES = 100_000
"""Enough for a step with some 30,000 tensors, at three or four entries each. An entry with frames takes 1 kB."""
_OWN = "the program records the history of its GPU memory itself: profkit took no snapshot"


class LocatedHistory:
    """`begin` with the located step; `end` at its end, which saves the snapshot; `drop` if the recording ends anywhere
    else. ``notes`` say why there is no snapshot. While it ``is_on`` the allocator records. Nothing here raises."""

    def __init__(self, allocator: CudaAllocator, directory: Path) -> None:
        self.notes: list[str] = []
        self._allocator, self._directory = allocator, directory
        self.is_on = False

    def begin(self) -> None:
        if self.is_on or self.notes or not self._allocator.is_used:
            return
        try:
            if self._allocator.keeps_history():
                self.notes.append(_OWN)
                return
            self.is_on = True
            self._allocator.begin_history(_MOST_ENTRIES, self._yield_to_program)
        except Exception as error:  # the calls are private
            self._give_up(error)
            self.drop()

    def end(self) -> None:
        if not self.is_on:
            return
        try:
            snapshot = self._allocator.snapshot()
            self.drop()
            save_snapshot(self._directory, snapshot)
        except OSError as error:
            self.notes.append(f"no snapshot of the GPU's memory: {why_not_written(self._directory, error)}")
        except Exception as error:
            self._give_up(error)
            self.drop()

    def drop(self) -> None:
        """Stop recording."""
        if self.is_on:
            self.is_on = False
            try:
                self._allocator.end_history()
            except Exception as error:
                self._give_up(error)

    def _yield_to_program(self) -> None:
        """The program begins or ends a history of its own, which is the program's from here on."""
        if self.is_on:
            self.is_on = False
            self._allocator.stop_watching()
            self.notes.append(_OWN)

    def _give_up(self, error: Exception) -> None:
        self.notes.append(f"no snapshot of the GPU's memory was taken: {describe(error)}")
