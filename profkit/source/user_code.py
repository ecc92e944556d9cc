"""Which source files are the user's own code."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from profkit.source.code import PROFKIT

_SCENARIOS = os.path.join(PROFKIT, "_scenarios") + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_TYPED_IN = ("<stdin>", "<ipython-input", "<console>")
"""Code without a file that is the user's all the same: from an interpreter's prompt or a notebook's cell."""
_COMPILED = "torchinductor_"
"""Part of the names of the directories to which torch.compile writes the code that it generates."""


class UserFiles(dict[str, bool]):
    """File name of a code object → whether it is the user's; each name is judged once.

    ``roots`` are directories whose code is the user's even inside a library, such as an installed module that is itself
    the program. Of the directories around a file the innermost decides.
    """

    def __init__(self, roots: Iterable[Path | str] = ()) -> None:
        super().__init__()
        own = {os.path.join(os.path.abspath(root), "") for root in roots} | {_SCENARIOS}
        self._verdicts = dict.fromkeys(_library_directories(), False) | dict.fromkeys(own, True)

    def __missing__(self, filename: str) -> bool:
        verdict = self[filename] = self._judge(filename)
        return verdict

    def _judge(self, filename: str) -> bool:
        if filename.startswith("<"):
            return filename.startswith(_TYPED_IN)
        path = os.path.abspath(filename)
        innermost = max((around for around in self._verdicts if path.startswith(around)), key=len, default="")
        below = path[len(innermost) :].split(os.sep)
        installed = any(part in _INSTALLED or part.startswith(_COMPILED) for part in below)
        return self._verdicts.get(innermost, True) and not installed


def _library_directories() -> set[str]:
    """The standard library (as named and as resolved), torch, profkit, and torch.compile's own cache."""
    found = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(os.__file__), PROFKIT}
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        found.add(os.path.dirname(torch.__file__))
    compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if compiled:
        found.add(os.path.abspath(compiled))
    found |= {os.path.realpath(path) for path in found}
    return {os.path.join(path, "") for path in found}
