"""The main process's side of DataLoader workers: it makes each worker keep an account.

A DataLoader's iterator reads its ``_worker_init_fn`` for each worker that it starts. A property in its place returns a
function that also begins the account (`profkit.collect.loaders.account`). That reaches forked and spawned workers alike
and leaves the loader itself untouched.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as WorkersIterator

from profkit.collect.loaders.account import OVER, WorkerInit
from profkit.collect.loaders.dataset_copies import describe_objects
from profkit.collect.program.guard import Guard, uncompiled
from profkit.core.files.writing import create, write_file
from profkit.run.directory import WORKERS_DIRECTORY

_MAX_WORKERS = 256
"""Without a limit, loaders that start new workers for each epoch would fill the directory."""
_MEMORY_READERS = 16
"""How many of a loader's workers read their memory, but at least those of the first epoch: more slow short epochs."""
_NAME = "_worker_init_fn"


class WorkerWatch:
    """From `install` to `remove`, each worker that starts keeps an account in the run directory."""

    def __init__(self, directory: Path, is_user: Mapping[str, bool], guard: Guard) -> None:
        self._run = os.path.abspath(directory)
        self._directory = os.path.join(self._run, WORKERS_DIRECTORY)
        self._is_user, self._guard = is_user, guard
        self._process = os.getpid()
        self._loaders: dict[int, int] = {}
        self._started: Counter[int] = Counter()
        self._begun = self._passed_by = 0

    def install(self) -> None:
        @uncompiled
        def read(iterator: WorkersIterator) -> Callable[[int], object] | None:
            original: Callable[[int], object] | None = vars(iterator).get(_NAME)
            given = [original]
            self._guard(lambda: given.append(self._stand_in(iterator, original)))
            return given[-1]

        def write(iterator: WorkersIterator, function: Callable[[int], object] | None) -> None:
            vars(iterator)[_NAME] = function

        setattr(WorkersIterator, _NAME, property(read, write))

    def remove(self) -> None:
        """Begin no more accounts and, unless in a forked child, make the workers end theirs."""
        if _NAME in vars(WorkersIterator):
            delattr(WorkersIterator, _NAME)
        if self._loaders and os.getpid() == self._process:
            with suppress(OSError):
                create(Path(self._directory, OVER)).close()

    @property
    def ended(self) -> str:
        """Why not all workers were watched, in a sentence; empty if all were."""
        if not self._passed_by:
            return ""
        return (
            f"{_MAX_WORKERS} workers of DataLoaders noted what they do, and {self._passed_by:,} later ones did not: "
            "persistent_workers=True starts fewer"
        )

    def _stand_in(self, iterator: Any, original: Any) -> Any:
        if type(original) is WorkerInit:
            return original
        if self._begun >= _MAX_WORKERS:
            self._passed_by += 1
            return original
        self._begun += 1
        data = id(iterator._dataset)  # the same in all epochs, while each epoch has a new iterator
        if data not in self._loaders:
            self._loaders[data] = len(self._loaders)
            self._describe(iterator, self._loaders[data])
        loader = self._loaders[data]
        self._started[loader] += 1
        reads_memory = self._started[loader] <= max(_MEMORY_READERS, int(iterator._num_workers))
        return WorkerInit(original, self._directory, loader, reads_memory)

    def _describe(self, iterator: Any, loader: int) -> None:
        known: dict[str, object] = {
            "loader": loader,
            "dataset": type(iterator._dataset).__name__[:200],
            "workers": int(iterator._num_workers),
            "persistent": bool(getattr(iterator, "_persistent_workers", False)),
            "objects": [],
        }
        with suppress(Exception):  # the recording matters more than the dataset's contents
            known["objects"] = describe_objects(iterator._dataset, self._is_user)
        write_file(Path(self._run), f"{WORKERS_DIRECTORY}/loader-{loader}.json", json.dumps(known).encode())
