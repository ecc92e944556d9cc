"""A program as Python itself would run it: its code and its ``__main__`` module."""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

_AS_SPAWNED = "__mp_main__"
"""What spawned processes call the main module. Once it is imported, `multiprocessing` has that name in the main process
too, for the objects that they send back."""


def split_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The parser's options, and the program's ``target`` and ``arguments``. Everything after the first ``--`` belongs
    to the program, further ``--`` included."""
    end = list(arguments).index("--")
    options = parser.parse_args(arguments[:end])
    options.target, *options.arguments = arguments[end + 1 :]
    return options


@dataclass(frozen=True, slots=True)
class Program:
    """``argument`` is what the program sees as ``sys.argv[0]``, ``directory`` its ``sys.path[0]``."""

    code: CodeType
    module: ModuleType
    argument: str
    directory: str

    def enter(self, arguments: list[str]) -> None:
        """Make it the main program of this process and of the children that multiprocessing spawns, which run the file
        or import the module that ``__main__`` came from."""
        sys.argv[:] = [self.argument, *arguments]
        _look_first_in(self.directory)
        sys.modules["__main__"] = self.module
        if _AS_SPAWNED in sys.modules:
            sys.modules[_AS_SPAWNED] = self.module

    def run(self) -> None:
        exec(self.code, vars(self.module))  # noqa: S102  # running the user's program is the point


def _look_first_in(directory: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # else Python adds no such entry
        sys.path[0] = directory


def load_script(target: str) -> Program:
    """Load what ``python target`` runs. Raises what Python would: `OSError` or `SyntaxError`."""
    path = os.path.abspath(target)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = _make_main(path, SourceFileLoader("__main__", path), None)
    return Program(code, module, target, str(Path(path).resolve().parent))


def load_module(name: str) -> Program:
    """Load what ``python -m name`` runs: the module, or the package's ``__main__``. Raises `ImportError` if absent."""
    _look_first_in(os.getcwd())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = spec.loader.get_code(spec.name) if spec is not None and hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]  # checked
    if spec is None or code is None or spec.origin is None:
        raise ImportError(f"No module named {name}", name=name)
    return Program(code, _make_main(spec.origin, spec.loader, spec), spec.origin, os.getcwd())


def _make_main(file: str, loader: object, spec: ModuleSpec | None) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update(
        __file__=file,
        __loader__=loader,
        __spec__=spec,
        __package__=None if spec is None else spec.parent,
        __cached__=None if spec is None else spec.cached,
        __builtins__=sys.modules["builtins"],
        __annotations__={},
    )
    return module
