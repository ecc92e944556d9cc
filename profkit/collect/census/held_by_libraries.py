"""Objects of the user's classes that only a library holds: in ``Trainer(callbacks=[History()]).fit(Net(), data)`` no
variable of the user's code names the module or the callback.

They are searched for once, from the variables of the libraries' running frames, through attributes and built-in
containers, without running any of their code. The search begins at the innermost frame: the loop that runs the program
holds what it was given, so the many objects of whatever started that loop (a test runner, a notebook) cannot use up the
search first. Afterwards they are known by weak references.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from profkit.collect.program.frames import forget_locals
from profkit.source.attributes import attributes_of

_MAX_OBJECTS = 4_000
"""They take four milliseconds, once."""
_MAX_DEPTH = 4
"""From a frame to its trainer, the trainer's connector or handler, that one's list, the callback."""
_MAX_ELEMENTS = 64
_OPAQUE = (Tensor, nn.Module, str, bytes, int, float, complex, type, ModuleType, FunctionType, BuiltinFunctionType)
"""Types that hold no such objects, or hold the many parts of a model."""


class Entrusted:
    """Finds the objects on first use. ``file_of`` returns the file of one of the user's classes, None for others."""

    def __init__(self, file_of: Callable[[type], str | None]) -> None:
        self._file_of = file_of
        self._found: list[tuple[weakref.ref[Any], str]] | None = None

    def objects(self, frames: Iterable[FrameType]) -> list[tuple[Any, str]]:
        """The living objects, each with its class's file. The first call searches these frames."""
        if self._found is None:
            self._found = list(self._find(frames))
        return [(value, file) for reference, file in self._found if (value := reference()) is not None]

    def _find(self, frames: Iterable[FrameType]) -> Iterator[tuple[weakref.ref[Any], str]]:
        left = iter(range(_MAX_OBJECTS))
        seen: dict[int, int] = {}
        for frame in frames:
            values = list(frame.f_locals.values())
            forget_locals(frame)
            for value, file in self._from(values, seen, left):
                with suppress(TypeError):  # its class has slots but none for weak references
                    yield weakref.ref(value), file

    def _from(self, values: list[Any], seen: dict[int, int], left: Iterator[int]) -> Iterator[tuple[Any, str]]:
        """What one frame's variables lead to. ``seen`` holds each object's shortest distance from a frame."""
        queue = deque((value, 0) for value in values)
        while queue and next(left, None) is not None:
            value, depth = queue.popleft()
            if type(value) is MethodType:
                value = value.__self__
            if value is None or seen.get(id(value), _MAX_DEPTH + 1) <= depth:
                continue
            file = self._file_of(type(value))
            if file is not None:
                seen[id(value)] = 0  # it need not be found again from anywhere
                yield value, file
                continue
            seen[id(value)] = depth
            if depth < _MAX_DEPTH:
                queue.extend((held, depth + 1) for held in _held_by(value))


def _held_by(value: Any) -> Iterable[Any]:
    kind = type(value)
    if issubclass(kind, _OPAQUE):
        return ()
    if kind in (list, tuple, set, frozenset, deque):
        return _first_of(value)
    if kind is dict:
        return _first_of(value.values())
    return list(attributes_of(value).values())


def _first_of(values: Iterable[Any]) -> Iterable[Any]:
    """Taken at once: other threads and the collector of garbage change what libraries hold."""
    with suppress(RuntimeError):
        return list(islice(values, _MAX_ELEMENTS))
    return ()
