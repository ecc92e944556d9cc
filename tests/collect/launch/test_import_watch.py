"""Whichever way a program imports a module, the watch acts once, when the module is complete."""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from profkit.collect.launch.import_watch import LATE_NAME, ImportWatch

NAME = "profkit_watched"
SOURCE = f"""\
import os
if os.environ.get("PROFKIT_FAIL_ONCE"):
    del os.environ["PROFKIT_FAIL_ONCE"]
    raise ImportError("not yet")
from {NAME} import part
late_name = 1
"""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Watches for a package that can be imported, and notes with each action whether the package was complete."""
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "__init__.py").write_text(SOURCE)
    (tmp_path / NAME / "part.py").write_text("")
    (tmp_path / "profkit_other.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    acted: list[bool] = []
    ImportWatch(NAME, "late_name", lambda: acted.append(hasattr(sys.modules[NAME], "late_name"))).install()
    yield acted
    for name in [NAME, f"{NAME}.part", "profkit_other"]:
        sys.modules.pop(name, None)


def watches() -> int:
    return sum(isinstance(finder, ImportWatch) for finder in sys.meta_path)


def test_an_import_is_seen_once_and_leaves_nothing_behind(watched):
    module = importlib.import_module(NAME)
    assert watched == [True]
    assert watches() == 0
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert watched == [True]


def test_questions_do_not_use_the_watch_up(watched):
    assert importlib.util.find_spec(NAME) == importlib.util.find_spec(NAME)
    assert importlib.util.find_spec("profkit_no_such_module") is None
    assert watched == []
    importlib.import_module(NAME)
    assert watched == [True]


def test_an_import_that_fails_first(watched, monkeypatch):
    monkeypatch.setenv("PROFKIT_FAIL_ONCE", "1")
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module(NAME)
    assert watched == []
    importlib.import_module(NAME)
    assert watched == [True]


def test_a_module_that_is_found_only_later(watched, monkeypatch):
    path = list(sys.path)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
    monkeypatch.setattr(sys, "path", path)
    importlib.import_module(NAME)
    assert watched == [True]


def test_a_lazy_module_is_seen_when_it_is_used(watched):
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    import profkit_other  # noqa: F401  # a look-up that must not touch the lazy module

    assert watched == []
    assert module.late_name == 1
    assert watched == [True]


class Delegating(importlib.abc.Loader):
    """A loader around another, as wrapt's and jaxtyping's are."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self.loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)


class InFront:
    """A finder that the program puts in front. It asks all others, and wraps their loader."""

    is_asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if self.is_asking:
            return None
        self.is_asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = Delegating(spec.loader)
        return spec


def test_a_finder_of_the_program_in_front(watched):
    sys.meta_path.insert(0, InFront())
    importlib.import_module(NAME)
    assert watched == [True]


class PastTheOthers(InFront):
    """A finder that asks only Python's own, and never the others."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path)


def test_an_import_past_the_watch_is_seen_with_the_next_look_up(watched):
    front = PastTheOthers()
    sys.meta_path.insert(0, front)
    importlib.import_module(NAME)
    sys.meta_path.remove(front)
    assert watched == []
    import profkit_other  # noqa: F401

    assert watched == [True]
    assert watches() == 0


def test_a_stub_is_not_the_module(watched, monkeypatch):
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    import profkit_other  # noqa: F401

    assert watched == []
    monkeypatch.delitem(sys.modules, NAME)
    importlib.import_module(NAME)
    assert watched == [True]


class Everything:
    """A finder that is the loader of all that it finds, without a place for attributes, as frozen programs have it."""

    __slots__ = ("source",)

    def __init__(self) -> None:
        self.source = SOURCE

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        is_package = name == NAME
        return ModuleSpec(name, self, is_package=is_package) if name.startswith(NAME) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == NAME:
            exec(self.source, vars(module))


class EverythingWithAttributes(Everything):
    """The same with a place for attributes."""


@pytest.mark.parametrize("finder", [Everything, EverythingWithAttributes])
def test_one_loader_for_all_modules(watched, finder):
    sys.meta_path.insert(1, finder())
    importlib.import_module(NAME)
    import profkit_other  # noqa: F401

    assert watched == [True]


def test_imports_in_several_threads(watched):
    threads = [threading.Thread(target=importlib.import_module, args=(NAME,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watched == [True]


def test_an_import_by_c_code(watched):
    load = ctypes.pythonapi.PyImport_ImportModule
    load.restype = ctypes.py_object
    load(NAME.encode())
    assert watched == [True]


def test_a_replaced_list_of_finders(watched, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    importlib.import_module(NAME)
    assert watched == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_does_not_act(watched):
    child = os.fork()
    if child == 0:
        importlib.import_module(NAME)
        os._exit(len(watched))
    assert os.waitpid(child, 0)[1] == 0
    importlib.import_module(NAME)
    assert watched == [True]


def test_pytorch_defines_the_late_name():
    assert LATE_NAME in vars(torch)
