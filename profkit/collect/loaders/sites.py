"""The line on which the program makes each DataLoader, which is the line to change.

A DataLoader sets its ``dataset`` when it is made; a property in place of that attribute notes the line. Its iterators
read ``dataset`` too, and keep the loader's sampler, which distinguishes the loaders of one dataset, such as one for
training and one for evaluation.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from profkit.collect.program.frames import forget_locals, line_of, walk_up
from profkit.collect.program.guard import Guard, noticed
from profkit.run.directory import CallSite
from profkit.source.code import function_name, source_file, source_line

_NAME = "dataset"
_MOST = 1000
_made: dict[int, tuple[weakref.ref[Any] | None, CallSite]] = {}
"""By the identity of the loader, of its sampler once it is iterated over, and of the dataset, as a library may remake
the loader with the same dataset. Kept for later windows."""
_several: set[int] = set()
"""Identities of datasets whose loaders are made on several lines."""


class LoaderSites:
    """From `install` to `remove`, notes the lines on which the program, not a library, makes DataLoaders, subclasses
    included."""

    def __init__(self, is_user: Mapping[str, bool], guard: Guard) -> None:
        self._is_user, self._guard = is_user, guard

    def install(self) -> None:
        def note_maker(loader: DataLoader[Any], dataset: object) -> None:
            frame = sys._getframe(2)  # skips this function and the property's own
            self._guard(lambda: self._note(loader, dataset, frame))

        def note_use(loader: DataLoader[Any]) -> None:
            self._guard(lambda: _note_sampler(loader))

        setattr(DataLoader, _NAME, noticed(_NAME, note_use, note_maker))

    def remove(self) -> None:
        if _NAME in vars(DataLoader):
            delattr(DataLoader, _NAME)

    def find(self, dataset: object, sampler: object = None) -> CallSite | None:
        """The line that made the loader with that ``sampler``. If it is unknown because a library made the loader, the
        only line that makes loaders of the dataset."""
        site = _site_of(sampler)
        return site if site is not None or id(dataset) in _several else _site_of(dataset)

    def _note(self, loader: DataLoader[Any], dataset: object, frame: FrameType | None) -> None:
        maker = next((caller for caller in walk_up(frame) if not _is_method(caller, loader)), None)
        if maker is None or not self._is_user[maker.f_code.co_filename] or len(_made) >= _MOST:
            return
        file, line = source_file(maker.f_code), line_of(maker)
        site = CallSite(file, line, function_name(maker.f_code), source_line(file, line))
        if _site_of(dataset) not in (None, site):
            _several.add(id(dataset))
        elif _site_of(dataset) is None:
            _several.discard(id(dataset))
        _made[id(dataset)] = _reference(dataset), site
        _made[id(loader)] = _reference(loader), site


def _note_sampler(loader: DataLoader[Any]) -> None:
    """An iterator reads the dataset: by now the loader is complete."""
    batches, samples = (vars(loader).get(name) for name in ("batch_sampler", "sampler"))  # runs no code of theirs
    site, sampler = _site_of(loader), samples if batches is None else batches
    reference = _reference(sampler)
    if site is not None and reference is not None and len(_made) < _MOST:
        _made[id(sampler)] = reference, site


def _site_of(held: object) -> CallSite | None:
    """The line noted for the object, unless another object has its identity by now."""
    reference, site = _made.get(id(held), (None, None))
    return site if reference is None or reference() is held else None


def _is_method(frame: FrameType, loader: DataLoader[Any]) -> bool:
    """Whether the frame runs a method of the loader, or a library's wrapper around one: its first argument is the
    loader. Another object of the program may well make loaders in its ``__init__``."""
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
