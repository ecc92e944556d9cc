"""A selection of hostile inputs of every kind, and what the harness itself must notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.core.errors import ProfkitError, UsageError
from tests.fuzzing import results, running
from tests.fuzzing.__main__ import NAMES, kind_of
from tests.fuzzing.reports import Unescaped
from tests.fuzzing.running import Kind, Odd, Tally, lay_out, run, run_here

COUNT = 60
"""Of each kind: some of them are judged, and a few rendered."""


@pytest.mark.parametrize("name", NAMES)
def test_hostile_inputs_are_read_or_refused_and_reports_of_them_are_escaped(name: str) -> None:
    kind = kind_of(name)
    kind = replace(kind, judged_each=min(kind.judged_each, 4), rendered_each=min(kind.rendered_each, 5))
    tally = run_here(kind, range(COUNT))
    assert tally.failures == []
    assert (tally.inputs, tally.judged > 0, tally.rendered > 0) == (COUNT, True, True)
    assert tally.grown_bytes < running.MOST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_number_makes_the_same_input_again_and_another_makes_another(name: str) -> None:
    kind = kind_of(name)
    assert kind.input(7) == kind.input(7)
    assert kind.input(7) != kind.input(8)
    assert kind.input(7) != kind.input(7, seed=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_input_is_a_row_of_the_results(name: str) -> None:
    kind = kind_of(name)
    assert kind.name == name
    assert kind.count >= 20_000


# What the harness notices


def kind_that(
    read: Callable[[Path], Any] = lambda _: None,
    render: Callable[[Any], None] = lambda _: None,
    found: tuple[str, ...] = (),
) -> Kind:
    return Kind("made up", 3, lambda rng: {"a/b.json": b"%d" % rng.randrange(9)}, read, render, found=found)


def refuse(folder: Path) -> None:
    raise UsageError("give something else")


def fail(folder: Path) -> None:
    raise ValueError("broken for the test")


def fail_in_two_lines(folder: Path) -> None:
    error = ProfkitError("")
    error.args = ("first\nsecond",)
    raise error


def wait(folder: Path) -> None:
    signal.pause()


def grow(folder: Path, outside: int = os.getpid()) -> None:  # the process that has no limit
    if os.getpid() != outside:
        bytearray(running._ADDRESSES_BYTES * 2)


def test_what_profkit_refuses_is_counted_and_what_it_reads_is_judged() -> None:
    assert run_here(kind_that(refuse), range(3)).refused == 3
    seen: list[object] = []
    tally = run_here(kind_that(lambda folder: lambda: (folder / "a" / "b.json").read_bytes(), seen.append), range(3))
    assert (tally.read, tally.judged, tally.rendered, len(seen)) == (3, 3, 3, 3)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (fail, "ValueError: broken for the test"),
        (fail_in_two_lines, "Unescaped: an error that is not one printable line"),
        (grow, "MemoryError"),
    ],
)
def test_anything_else_is_a_failure(read: Callable[[Path], Any], what: str) -> None:
    (tally,) = run(kind_that(read), [5])
    assert [failure.number for failure in tally.failures] == [5]
    assert tally.failures[0].what.startswith(what)


def test_an_unescaped_report_is_a_failure() -> None:
    def render(_: object) -> None:
        raise Unescaped("the element <img>")

    tally = run_here(kind_that(lambda _: lambda: None, render), [5])
    assert [failure.what for failure in tally.failures] == ["Unescaped: the element <img>"]


def test_an_input_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_SECONDS", 0.01)
    tally = run_here(kind_that(wait), [5])
    assert [failure.what for failure in tally.failures] == ["takes more than 0.01 s"]


def test_a_worker_that_dies_costs_the_input_at_which_it_died() -> None:
    mine = os.getpid()

    def read(folder: Path) -> None:
        if os.getpid() != mine and (folder / "a" / "b.json").read_bytes() == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    kind = kind_that(read)
    dies = kind.input(2)["a/b.json"]
    deadly = [number for number in range(8) if kind.input(number)["a/b.json"] == dies]
    whole = Tally()
    for part in run(kind, range(8)):
        whole.add(part)
    assert [failure.number for failure in whole.failures] == deadly
    assert whole.inputs == 8


def test_an_input_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    lay_out({"a/b": b"1", "c": b"2"}, tmp_path / "input")
    lay_out({"a/d": b"3"}, tmp_path / "input")
    assert [path.name for path in sorted((tmp_path / "input").rglob("*")) if path.is_file()] == ["d"]


def test_pipes_links_and_folders_lie_in_a_files_place(tmp_path: Path) -> None:
    lay_out({odd.name: odd for odd in Odd}, tmp_path)
    at = {odd: tmp_path / odd.name for odd in Odd}
    assert at[Odd.PIPE].is_fifo()
    assert at[Odd.LINK_TO_PIPE].is_symlink()
    assert at[Odd.LINK_TO_PIPE].is_fifo()
    assert at[Odd.FOLDER].is_dir()
    assert [odd for odd in Odd if at[odd].is_symlink() and at[odd].exists()] == [Odd.LINK_OUT, Odd.LINK_TO_PIPE]
    lay_out({}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_run_replaces_the_row_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    results.save(replace(kind_that(), name="b"), Tally(read=1), path)
    results.save(
        replace(kind_that(found=("It fell over.",)), name="a"), Tally(read=20_000, refused=3, seconds=7.2), path
    )
    results.save(replace(kind_that(), name="b"), Tally(read=5), path)
    text = path.read_text()
    rows = [line for line in text.splitlines() if line.startswith(("| a ", "| b "))]
    assert [row.split(" | ")[:3] for row in rows] == [["| a", "20,003", "20,000"], ["| b", "5", "5"]]
    assert "### a\n\n- It fell over.\n" in text
    assert text.count("### ") == 1
