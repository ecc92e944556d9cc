"""Where the program makes its DataLoaders: the line on which it changes what one is given.

A DataLoader sets its own ``dataset`` when it is made; a property in the place of that attribute looks who made it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from profkit.collect.frames import forget_locals, function_name, source_file, source_line, walk_up
from profkit.collect.guard import Guard, uncompiled
from profkit.run import CallSite

_NAME = "dataset"
_MOST = 1000
_made: dict[int, tuple[weakref.ref[Any] | None, CallSite]] = {}
"""By the identity of the dataset, which a loader that a library makes anew shares; for windows to come, too."""


class LoaderSites:
    """From `install` to `remove` the lines are noted on which the program makes DataLoaders, itself or through a class
    derived from it; not those of libraries."""

    def __init__(self, is_user: Mapping[str, bool], guard: Guard) -> None:
        self._is_user, self._guard = is_user, guard

    def install(self) -> None:
        @uncompiled
        def write(loader: DataLoader[Any], dataset: object) -> None:
            vars(loader)[_NAME] = dataset
            self._guard(lambda: self._note(loader, dataset, sys._getframe(3)))  # past the lambda, the guard and write

        @uncompiled
        def read(loader: DataLoader[Any]) -> object:
            if _NAME not in vars(loader):
                raise AttributeError(_NAME)
            return vars(loader)[_NAME]

        setattr(DataLoader, _NAME, property(read, write))

    def remove(self) -> None:
        if _NAME in vars(DataLoader):
            delattr(DataLoader, _NAME)

    def find(self, dataset: object) -> CallSite | None:
        """The line that made the latest loader of that dataset, where it was seen."""
        reference, site = _made.get(id(dataset), (None, None))
        return site if reference is None or reference() is dataset else None

    def _note(self, loader: DataLoader[Any], dataset: object, frame: FrameType | None) -> None:
        maker = next((caller for caller in walk_up(frame) if not _is_method(caller, loader)), None)
        if maker is None or not self._is_user[maker.f_code.co_filename] or len(_made) >= _MOST:
            return
        file, line = source_file(maker.f_code), maker.f_lineno
        site = CallSite(file, line, function_name(maker.f_code), source_line(file, line))
        _made[id(dataset)] = _reference(dataset), site


def _is_method(frame: FrameType, loader: DataLoader[Any]) -> bool:
    """Whether it makes the loader as a part of it: methods of the DataLoader and of derived classes, and what libraries
    wrap around these. An object of the program's may make loaders in an ``__init__`` of its own."""
    code = frame.f_code
    if not code.co_argcount:
        return False
    is_its_own = frame.f_locals.get(code.co_varnames[0]) is loader
    forget_locals(frame)
    return is_its_own


def _reference(dataset: object) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(dataset)
    except TypeError:  # a list, for example
        return None
