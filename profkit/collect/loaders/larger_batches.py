"""The program's DataLoaders with batches so many times as large, and how fast it takes samples from them.

A loader's ``__init__`` gets another ``batch_size``, or the batch sampler that it is given gets one. Libraries remake
loaders from the attributes of others: what already is as large stays as it is. A loader without batches of its own
(``batch_size=None``) cannot be changed.

Samples are counted where the loader asks its sampler for the indices of a batch, as only there their number is known:
a batch may be a graph or a dictionary. Such batches come in the order in which they were asked for.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

_MOST_ITERATORS = 1000
"""One for each pass over a loader; their batches are forgotten with them."""


class LargerBatches:
    """From `install` on, DataLoaders have ``times`` their batch, and ``on_samples`` is told how many samples each batch
    has that the program got, 0 if that is not known. ``sizes`` are the batches that were changed, as asked for, and
    ``fixed`` says of each loader that could not be changed why."""

    def __init__(self, times: int, on_samples: Callable[[int], None]) -> None:
        self._times, self._on_samples = times, on_samples
        self._process = os.getpid()
        self._made: set[tuple[int, int]] = set()
        self._samplers: dict[int, Any] = {}
        self._asked: dict[int, deque[int]] = {}
        self.sizes: list[int] = []
        self.fixed: list[str] = []

    def install(self) -> None:
        """Change the class for good: the process belongs to the trial."""
        loaders: Any = DataLoader
        iterators: Any = _BaseDataLoaderIter
        made, asked, given = loaders.__init__, iterators._next_index, iterators.__next__
        signature = inspect.signature(made)

        @functools.wraps(made)
        def make(loader: Any, *arguments: Any, **options: Any) -> Any:
            try:
                bound = signature.bind(loader, *arguments, **options)
            except TypeError:  # the loader itself says so
                return made(loader, *arguments, **options)
            self._enlarge(bound.arguments)
            return made(*bound.args, **bound.kwargs)

        @functools.wraps(asked)
        def ask(iterator: Any) -> Any:
            indices = asked(iterator)
            self._note_asked(iterator, indices)
            return indices

        @functools.wraps(given)
        def give(iterator: Any) -> Any:
            batch = given(iterator)
            self._note_given(iterator)
            return batch

        loaders.__init__, iterators._next_index, iterators.__next__ = make, ask, give

    def _enlarge(self, options: dict[str, Any]) -> None:
        """Change the options of a loader that is being made."""
        sampler = options.get("batch_sampler")
        if sampler is not None:
            self._enlarge_sampler(sampler)
            return
        size, key = options.get("batch_size", 1), id(options.get("dataset"))
        if size is None:
            self.fixed.append("a loader has batch_size=None, so its dataset makes the batches")
        elif isinstance(size, int) and size > 0 and (key, size) not in self._made:  # else the loader says what is wrong
            options["batch_size"] = size * self._times
            self._made.add((key, size * self._times))
            self.sizes.append(size)

    def _enlarge_sampler(self, sampler: Any) -> None:
        if id(sampler) in self._samplers:
            return
        self._samplers[id(sampler)] = sampler  # alive, so that no other gets its identity
        size = getattr(sampler, "batch_size", None)
        if isinstance(size, bool) or not isinstance(size, int):
            self.fixed.append(f"{type(sampler).__name__} has no attribute batch_size to change")
            return
        if any(made == size for _, made in self._made):  # a library's, of a loader that has been changed
            return
        try:
            sampler.batch_size = size * self._times
        except AttributeError:
            self.fixed.append(f"the batch_size of {type(sampler).__name__} cannot be set")
            return
        self.sizes.append(size)

    def _note_asked(self, iterator: Any, indices: Any) -> None:
        if os.getpid() != self._process:
            return
        if id(iterator) not in self._asked and len(self._asked) >= _MOST_ITERATORS:
            self._asked.clear()
        waiting = self._asked.setdefault(id(iterator), deque())
        waiting.append(len(indices) if isinstance(indices, list | tuple) else 0)

    def _note_given(self, iterator: Any) -> None:
        if os.getpid() != self._process:
            return
        waiting = self._asked.get(id(iterator))
        self._on_samples(waiting.popleft() if waiting else 0)
