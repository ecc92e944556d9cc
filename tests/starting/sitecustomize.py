"""On the path of programs that are started only so that their recordings can be judged.

They import PyTorch and its compiler's front end, and end, without the collector of garbage: in a third less time. What
they run themselves runs with it.
"""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


class _Uncollected(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        was_on = gc.isenabled()
        gc.disable()
        try:
            super().exec_module(module)
        finally:
            if was_on:
                gc.enable()


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in ("torch", "torch._dynamo") else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Uncollected(name, spec.origin)
        return spec


sys.meta_path.insert(0, _Finder())
atexit.register(gc.freeze)
