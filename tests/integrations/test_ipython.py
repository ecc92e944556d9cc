"""The cell magic in a real session of IPython, and how a notebook shows a diagnosis."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from profkit.findings.values import Diagnosis
from profkit.report import render
from profkit.run.directory import load_run
from tests.integrations import ipython_program
from tests.recordings import Recordings, all_code


@pytest.fixture(params=["terminal", "kernel"])
def session(request: pytest.FixtureRequest, recordings: Recordings) -> dict[str, Any]:
    if find_spec("IPython") is None:
        pytest.skip("IPython is not installed")
    kept = recordings.fork("tests.integrations.ipython_program:main", [request.param], reads=all_code())
    printed = kept.ended.stdout + kept.ended.stderr
    assert kept.ended.returncode == 0, printed
    outcome: dict[str, Any] = json.loads((kept.directory / "outcome.json").read_text())
    return {**outcome, "printed": printed, "directory": kept.directory}


def line_of(cell: str, source: str) -> int:
    return [line.strip() for line in cell.splitlines()].index(source) + 1


def test_findings_name_the_cell_and_its_line(session: dict[str, Any]) -> None:
    loops = sorted(tuple(found[1:]) for found in session["findings"] if found[0] == "tensor-element-loop")
    inside, own = "total = total + values[i]", "penalty = penalty + value"
    assert loops == [
        ("In[2]", line_of(ipython_program.FUNCTION, inside), inside),
        ("In[3]", line_of(ipython_program.RECORDED, own), own),
    ]


def test_the_cell_runs_as_without_the_magic(session: dict[str, Any]) -> None:
    assert (session["load"], session["function"], session["recorded"]) == (None, None, None)
    assert session["kept"] == 5
    assert "6" in session["printed"].splitlines(), "the last expression's value is shown"
    described = load_run(session["directory"] / "run")
    assert (described.step_signal, described.target) == ("optimizer", "notebook")


def test_an_error_in_the_cell_is_shown_as_its_own(session: dict[str, Any]) -> None:
    assert session["failed"] == "KeyError"
    assert "the program failed: KeyError: 'mine'" in load_run(session["directory"] / "failed").notes


def test_unknown_options_of_the_magic_are_refused(session: dict[str, Any]) -> None:
    assert (session["wrong"], session["wrong_number"]) == ("UsageError", "UsageError")
    assert "at least" in session["printed"]


def test_the_extension_can_be_unloaded(session: dict[str, Any]) -> None:
    assert (session["unload"], session["left"]) == (None, False)


def test_a_notebook_shows_the_page_and_a_terminal_the_text(session: dict[str, Any]) -> None:
    assert session["html"].startswith("<iframe ")
    assert "What to change" in session["plain"]
    assert "tensor-element-loop" in session["plain"]


class Frame(HTMLParser):
    """The elements of a fragment, and the page in its frame."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(fragment)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_the_frame_contains_the_page_with_all_permissions_denied(hostile: Diagnosis) -> None:
    fragment = hostile._repr_html_()
    ((tag, attributes),) = Frame(fragment).elements
    assert (tag, attributes["sandbox"]) == ("iframe", "")
    assert set(attributes) == {"sandbox", "title", "style", "srcdoc"}
    assert attributes["srcdoc"] == render(hostile, "html")
    assert "<script>alert(1)</script>" not in str(attributes["srcdoc"])
    assert fragment.count("<") == 2, "nothing of the page is part of the notebook's own"


@pytest.fixture
def hostile() -> Diagnosis:
    from profkit.findings.values import Finding, Kind, Location, RunSummary, Severity, Timing

    evil = "\"'></iframe><script>alert(1)</script>"
    place = Location(evil, 3, evil, evil)
    finding = Finding("a-rule", Kind.FAULT, Severity.HIGH, evil, 1, 1.0, evil, place)
    return Diagnosis(RunSummary((evil,), None, None, None, None), Timing(0, None, ""), (finding,), {}, (evil,))


def test_code_in_notebook_cells_is_user_code(tmp_path: Path) -> None:
    from profkit.source.user_code import UserFiles

    files = UserFiles()
    assert files["/tmp/ipykernel_4711/1234567890.py"]
    assert files["<ipython-input-3-abc>"]
