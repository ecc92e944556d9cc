"""The time that libraries take to load, of programs whose own modules work while they are imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profkit.collect.launch.loads import Loads, importlib_core

LOADED = "loads_of_a_test"


class Clock:
    """Each second that a module asks for takes one, of which a tenth is waited."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> tuple[int, int]:
        return self.now, self.now // 10


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """What is watched of a program in ``own``, with a library beside it and one in its own environment."""
    clock = Clock()
    for place in ("own", "beside", "own/venv/site-packages"):
        (tmp_path / place).mkdir(parents=True)
        monkeypatch.syspath_prepend(str(tmp_path / place))
    monkeypatch.setattr(importlib_core, "_find_and_load", importlib_core._find_and_load)
    monkeypatch.setattr(sys, "clock_of_a_test", clock, raising=False)
    found = Loads([str(tmp_path / "own")], clock)
    found.watch()
    yield found
    for name in [name for name in sys.modules if name.startswith(LOADED)]:
        del sys.modules[name]


def write(folder: Path, name: str, seconds: int, *imports: str) -> str:
    lines = [f"import {LOADED}_{one}" for one in imports]
    (folder / f"{LOADED}_{name}.py").write_text(
        "\n".join(["import sys", f"sys.clock_of_a_test.now += {seconds}", *lines])
    )
    return f"{LOADED}_{name}"


def test_a_library_counts_with_all_that_it_loads_and_once(loads, tmp_path):
    write(tmp_path / "beside", "part", 20)
    name = write(tmp_path / "beside", "library", 100, "part")
    __import__(name)
    assert (loads.taken_ns, loads.crowded_ns) == (120, 12)
    __import__(name)  # it is there
    assert loads.taken_ns == 120


def test_a_module_of_the_program_counts_only_what_it_loads_of_libraries(loads, tmp_path):
    write(tmp_path / "beside", "library", 10)
    write(tmp_path / "own/venv/site-packages", "installed", 200)
    write(tmp_path / "own", "inner", 1000, "installed")
    __import__(write(tmp_path / "own", "main", 5000, "library", "inner"))
    assert loads.taken_ns == 210


def test_a_load_that_fails_is_as_it_was(loads, tmp_path):
    write(tmp_path / "beside", "library", 10, "missing")
    with pytest.raises(ModuleNotFoundError, match="missing"):
        __import__(f"{LOADED}_library")
    __import__(write(tmp_path / "beside", "other", 7))
    assert loads.taken_ns == 7
