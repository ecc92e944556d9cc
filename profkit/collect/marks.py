"""Events of profkit's own in the trace, and those around the garbage collector's pauses, which no operator shows."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from profkit.run import GC_MARK


class Mark(Protocol):
    """An event that is open from ``__enter__`` to ``__exit__``."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: None, error: None, trace: None, /) -> object: ...


open_mark: Callable[[str], Mark] = getattr(
    torch._C._profiler, "_RecordFunctionFast", torch.autograd.profiler.record_function
)
"""Makes a mark of a name. The fast kind (about 1 us while recording) is private and passes by the dispatcher, so that
no dispatch mode of the program sees it; the public kind does the same, slower."""


class CollectorMarks:
    """Between `install` and `remove`, each collection is an event named ``profkit.gc#<generation>``."""

    def __init__(self) -> None:
        self._open = threading.local()

    def install(self) -> None:
        gc.callbacks.append(self._on_collection)

    def remove(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        mark: Mark | None = getattr(self._open, "mark", None)
        if phase == "start":
            self._open.mark = mark = open_mark(f"{GC_MARK}{info['generation']}")
            mark.__enter__()
        elif mark is not None:
            mark.__exit__(None, None, None)
            self._open.mark = None
