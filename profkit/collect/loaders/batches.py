"""The batches that the program requests from its DataLoaders, and descriptions of these loaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.program.clocks import time
from profkit.collect.program.guard import Guard, noticed
from profkit.run.directory import CallSite, LoaderUse


class LoaderBatches:
    """Notices when the program asks a DataLoader for a batch, and describes the loaders.

    A DataLoader's iterator reads its ``_profile_name`` first thing in ``__next__``, and sets ``_num_yielded`` once it
    has the batch. Properties in their place notice both, the second only if CPUs are counted (``feeding``) or batches
    are looked at (``on_given``).

    Calls are made for the first loader alone, which is the outermost of nested loops: ``on_batch`` at each request,
    with the number of batches requested before, and ``on_epoch`` before the first batch of each further pass. ``uses``
    maps every loader to the time that its batches took. ``ahead`` is the most batches that one loads in advance.
    """

    def __init__(
        self,
        on_batch: Callable[[int], None],
        on_epoch: Callable[[], None],
        guard: Guard,
        sites: LoaderSites | None,
        feeding: FeedingWatch | None,
        on_given: Callable[[_BaseDataLoaderIter], None] | None = None,
    ) -> None:
        self._on_batch, self._on_epoch, self._guard, self._sites = on_batch, on_epoch, guard, sites
        self._feeding, self._on_given = feeding, on_given
        self._first: int | None = None
        self._asked = 0
        self._replaced: dict[str, tuple[Any, Any]] = {}
        self.uses: dict[LoaderUse, int] = {}
        self._waiting: tuple[int, LoaderUse, int] | None = None
        self.ahead = 0

    def install(self) -> None:
        guard, feeding = self._guard, self._feeding
        self._replace(
            "_profile_name", noticed("_profile_name", on_read=lambda of: guard(lambda: self._note_request(of)))
        )
        if feeding is not None or self._on_given is not None:

            def note_end(iterator: _BaseDataLoaderIter, number: int) -> None:
                if number:  # 0 when a pass begins
                    guard(lambda: self._note_batch(iterator))

            self._replace("_num_yielded", noticed("_num_yielded", on_write=note_end))
        if self._sites is not None:
            self._sites.install()

    def remove(self) -> None:
        if self._sites is not None:
            self._sites.remove()
        for name, (own, before) in self._replaced.items():
            if vars(_BaseDataLoaderIter).get(name) is own and before is None:
                delattr(_BaseDataLoaderIter, name)
            elif vars(_BaseDataLoaderIter).get(name) is own:
                setattr(_BaseDataLoaderIter, name, before)
        self._replaced.clear()

    def follow(self, earlier: LoaderBatches) -> None:
        """Go on with the data whose batches counted ``earlier``."""
        self._first, self._asked = earlier._first, earlier._asked

    def _replace(self, name: str, own: Any) -> None:
        """Another watch, which only counts steps, may have its own in this place."""
        self._replaced[name] = own, vars(_BaseDataLoaderIter).get(name)
        setattr(_BaseDataLoaderIter, name, own)

    def _note_request(self, iterator: _BaseDataLoaderIter) -> None:
        site = self._sites.find(iterator._dataset, iterator._index_sampler) if self._sites is not None else None
        use = _describe_loader(iterator, site)
        self.uses.setdefault(use, 0)
        self.ahead = max(self.ahead, int(iterator._num_workers) * int(getattr(iterator, "_prefetch_factor", None) or 0))
        data = id(iterator._dataset)  # the same in all epochs, while each epoch has a new iterator
        if self._first is None:
            self._first = data
        if self._first == data:
            if self._asked and not iterator._num_yielded:
                self._on_epoch()
            self._on_batch(self._asked)
            self._asked += 1
        self._waiting = id(iterator), use, time.perf_counter_ns()
        if self._feeding is not None:
            self._feeding.ask(iterator)

    def _note_batch(self, iterator: _BaseDataLoaderIter) -> None:
        if self._feeding is not None:
            self._feeding.give(iterator)
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[0] == id(iterator):
            _, use, since_ns = waiting
            self.uses[use] = self.uses.get(use, 0) + time.perf_counter_ns() - since_ns
        if self._on_given is not None:
            self._on_given(iterator)


def _describe_loader(iterator: _BaseDataLoaderIter, site: CallSite | None) -> LoaderUse:
    size = getattr(iterator._index_sampler, "batch_size", None)
    return LoaderUse(
        workers=int(iterator._num_workers),
        batch_size=size if isinstance(size, int) else None,
        pin_memory=bool(iterator._pin_memory),
        persistent_workers=bool(getattr(iterator, "_persistent_workers", False)),
        site=site,
    )
