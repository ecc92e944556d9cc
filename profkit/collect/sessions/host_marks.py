"""Events that profkit adds around work that no operator shows: garbage collections and writing files."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch

from profkit.collect.program.guard import noticed, uncompiled
from profkit.collect.sessions.saved_views import sizes_being_saved
from profkit.core.marks import GC_AUTOMATIC, GC_MARK, SAVE_MARK, SAVED_MARK

_MOST_SHOWN = 0.5
"""Of the storages' bytes. Where tensors show more, writing copies of them wins little."""
_LEAST_BYTES = 1 << 20
"""Fewer bytes are written in a millisecond."""


class Mark(Protocol):
    """An event that lasts from ``__enter__`` to ``__exit__``."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: None, error: None, trace: None, /) -> object: ...


open_mark: Callable[[str], Mark] = getattr(
    torch._C._profiler, "_RecordFunctionFast", torch.autograd.profiler.record_function
)
"""Makes a mark with a name. The fast kind (about 1 µs while recording) is private and bypasses the dispatcher, so no
dispatch mode of the program sees it. The public kind is slower."""


def free_cycles() -> None:
    """Collect once at the end of a recording: only their own cycles still held the objects that this frees.

    Python's own collections are rarer than a recording is long. A program that disabled them is left alone.
    """
    if gc.isenabled():
        gc.collect()


class CollectorMarks:
    """Between `install` and `remove`, each collection is an event named ``profkit.gc#<generation>``, and
    ``profkit.gc#<generation>.automatic`` where Python began it by itself."""

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
            suffix = GC_AUTOMATIC if _is_automatic() else ""
            self._open.mark = mark = open_mark(f"{GC_MARK}{info['generation']}{suffix}")
            mark.__enter__()
        elif mark is not None:
            mark.__exit__(None, None, None)
            self._open.mark = None


def _is_automatic() -> bool:
    """Whether Python began the collection itself. It does so when the surplus of new objects over freed ones passes the
    threshold, and resets the counts only after the callbacks."""
    return gc.isenabled() and gc.get_count()[0] > gc.get_threshold()[0]


class SaveMarks:
    """Between `install` and `remove`, each file that ``torch.save`` writes on this thread is an event.

    ``torch.save`` makes a writer object that first stores where to write. A property in place of that attribute opens
    the mark, which closes when the writer is dropped, so profkit is not on the stack in between. The classes are
    private; without them nothing is marked.
    """

    _WRITERS = (("_open_zipfile_writer_file", "name"), ("_open_zipfile_writer_buffer", "buffer"))

    def __init__(self) -> None:
        self._open: weakref.WeakSet[_OpenUntilDropped] = weakref.WeakSet()
        self._replaced: list[tuple[type, str]] = []
        self._thread = 0

    def install(self) -> None:
        self._thread = threading.get_ident()
        for kind, attribute in self._WRITERS:
            writer = getattr(torch.serialization, kind, None)
            if writer is not None and not hasattr(writer, attribute):
                setattr(writer, attribute, noticed(attribute, on_write=self._begin))
                self._replaced.append((writer, attribute))

    def remove(self) -> None:
        """Stop marking. Open marks end here, with the recording."""
        for writer, attribute in self._replaced:
            delattr(writer, attribute)
        self._replaced.clear()
        for mark in list(self._open):
            mark.close()

    def _begin(self, writer: object, _: object) -> None:
        if threading.get_ident() == self._thread:
            with suppress(Exception):  # the program's file matters more than the mark
                vars(writer)["_profkit_mark"] = mark = _OpenUntilDropped()
                self._open.add(mark)
                shown, whole = sizes_being_saved()
                if whole >= _LEAST_BYTES and shown <= _MOST_SHOWN * whole:
                    inner = open_mark(f"{SAVED_MARK}{shown}.{whole}")
                    inner.__enter__()
                    inner.__exit__(None, None, None)


class _OpenUntilDropped:
    """A mark that stays open while this object lives."""

    def __init__(self) -> None:
        self._mark: Mark | None = open_mark(SAVE_MARK)
        self._mark.__enter__()

    @uncompiled
    def close(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    __del__ = close
