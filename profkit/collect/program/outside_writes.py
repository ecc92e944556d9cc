"""A trial must not write over what the program's own runs have written.

It runs in a copy of the program's folder, but a path may be absolute. Python tells before a file is opened, renamed or
removed (``sys.addaudithook``); `torch.save` opens files in C++, so callers ask for its path themselves. Temporary
files, caches and devices are nobody's results. Other libraries that write without Python are not noticed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OF_TWO = frozenset(("os.rename", "os.link", "shutil.move"))
_OF_ONE = frozenset(("os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"))
_SYSTEM = ("/dev", "/proc", "/sys", "/run")
_CACHES = (
    "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR",
    "MPLCONFIGDIR", "PYTHONPYCACHEPREFIX",
)  # fmt: skip
"""Variables with folders of which a program loses nothing that it could not make again."""


class OutsideWrites:
    """What lies outside of ``inside``, but for temporary files, caches and devices. Paths below ``kept`` count as
    outside wherever they lie."""

    def __init__(self, inside: Path, kept: Path) -> None:
        self._inside, self._kept = os.path.realpath(inside), os.path.realpath(kept)
        home = os.path.realpath(os.path.expanduser("~"))
        caches = [os.path.realpath(os.environ[name]) for name in _CACHES if os.environ.get(name)]
        self._free = tuple({os.path.realpath(tempfile.gettempdir()), *_SYSTEM, *caches} - {"/", home})
        self._hidden = os.path.join(home, ".")

    def install(self, refuse: Callable[[str], None]) -> None:
        """From here on ``refuse`` is called with the path before the process writes outside. It cannot be undone."""

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            for path in _written(event, arguments):
                if self.has(path):
                    refuse(os.fsdecode(path))

        sys.addaudithook(hear)

    def has(self, path: Any) -> bool:
        """Whether a path lies outside; open files do not count."""
        return isinstance(path, str | bytes | os.PathLike) and self._is_outside(os.path.realpath(os.fsdecode(path)))

    def _is_outside(self, path: str) -> bool:
        if _is_below(path, self._inside):
            return False
        if _is_below(path, self._kept):
            return "__pycache__" not in path.split(os.sep)
        is_free = path.startswith(self._hidden) or any(_is_below(path, folder) for folder in self._free)
        return not is_free and "__pycache__" not in path.split(os.sep)


def _written(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The paths that an event is about to write to, make or remove."""
    if event == "open":
        return arguments[:1] if isinstance(arguments[2], int) and arguments[2] & _WRITING else ()
    if event == "os.mkdir":
        return () if os.path.isdir(arguments[0]) else arguments[:1]
    if event == "os.symlink":
        return arguments[1:2]  # who writes through it is heard then
    return arguments[:2] if event in _OF_TWO else arguments[:1] if event in _OF_ONE else ()


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
