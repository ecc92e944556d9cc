"""How long a run loads modules of libraries, which is no part of what a change makes faster.

The first optimizer alone loads a thousand modules of PyTorch's compiler. Modules of the program are its own work: a
program may train while it is imported. What these load of libraries counts all the same.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

importlib_core: Any = sys.modules["_frozen_importlib"]
"""Python's own loading of modules: it is asked for each that is not there yet."""
_PACKAGES = ("site-packages", "dist-packages")
"""Folders of libraries, which may lie in the program's."""


class Loads:
    """The time that libraries took to load, and how long the main thread waited for a busy processor meanwhile."""

    def __init__(self, folders: Sequence[str], clocks: Callable[[], tuple[int, int]]) -> None:
        self.taken_ns, self.crowded_ns = 0, 0
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self._clocks, self._in_library = clocks, False
        self._counted = [(0, 0)]
        self._thread = threading.get_ident()

    def watch(self) -> None:
        """From now on, if this Python loads modules in that way."""
        load = getattr(importlib_core, "_find_and_load", None)
        if load is None:
            return

        def watched(name: str, *given: Any) -> Any:
            if self._in_library or threading.get_ident() != self._thread:
                return load(name, *given)
            return self._timed(name, lambda: load(name, *given))

        importlib_core._find_and_load = watched

    def _timed(self, name: str, load: Callable[[], Any]) -> Any:
        """A load whose module may be the program's. What it loads of libraries has been counted when it ends."""
        self._in_library = self._is_library(name.partition(".")[0])
        begun = self._clocks()
        self._counted.append((0, 0))
        try:
            return load()
        finally:
            ended, inner = self._clocks(), self._counted.pop()
            self._in_library = False
            spent = (ended[0] - begun[0], ended[1] - begun[1]) if self._is_library(name) else inner
            self.taken_ns += spent[0] - inner[0]
            self.crowded_ns += spent[1] - inner[1]
            outer = self._counted[-1]
            self._counted[-1] = outer[0] + spent[0], outer[1] + spent[1]

    def _is_library(self, name: str) -> bool:
        """Whether a module is known to be none of the program's. One without a file is built in, or failed to load."""
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if module is None or not isinstance(file, str):
            return module is not None
        real = os.path.realpath(file)
        return not real.startswith(self._folders) or any(part in _PACKAGES for part in real.split(os.sep))
