"""The map in CONTRIBUTING.md is that of the tree, and the pages for readers lead where they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contributing import PAGE, draw_tree, summary, with_parts
from tests.test_imports import PACKAGE

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", PAGE, *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:profkit|tests|scenarios|docs|traces)/[\w./-]+)`")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_the_rooms_and_layers_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_parts(page), "run `python -m tests.contributing`"


def anchors(page: Path) -> set[str]:
    """The names by which its headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@each_page
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@each_page
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = _PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if "/traces/" not in path and not (ROOT / path).exists()] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing\n[a](page.md#one-thing) [b](#two) [c](gone.md)\n```\n[d](in_code.md)\n```\n")
    assert list(broken_links(page)) == ["#two", "gone.md"]


def test_every_page_under_docs_can_be_reached_from_the_readme() -> None:
    linked = {(ROOT / link).resolve() for link in _LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page.parent.name == "docs"} <= linked


def test_the_readme_has_the_test_command_that_continuous_integration_runs() -> None:
    commands = re.findall(r"^python3 -m venv .*-m pytest.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 1
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("pip install -q ", "pip install ")
    assert commands[0] in script


def test_every_room_has_a_sentence() -> None:
    assert [line for line in draw_tree().splitlines() if line.endswith("/")] == []
    assert [str(path) for path in PACKAGE.rglob("__init__.py") if not summary(path)] == []


def test_the_page_stays_short_enough_to_be_read() -> None:
    """What one room alone needs to know stands in its `__init__.py`."""
    assert PAGE.stat().st_size <= 12_500
