"""The checks of reports find what was not escaped, and nothing else."""

from __future__ import annotations

import json

import pytest

from profkit.findings.values import Diagnosis, RunSummary, Timing
from profkit.report import render
from tests.fuzzing import reports
from tests.fuzzing.hostile import TEXTS
from tests.fuzzing.reports import Unescaped, check_reports
from tests.report.conftest import clean_diagnosis, full_diagnosis, leak

__all__ = ["clean_diagnosis", "full_diagnosis", "leak"]
"""Fixtures of the tests of reports."""


def test_the_reports_of_a_sound_diagnosis_pass(full_diagnosis: Diagnosis) -> None:
    check_reports(full_diagnosis)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_reports_of_each_hostile_text_pass(text: str) -> None:
    health = (text, f"a {text}", f"{text} b")
    check_reports(
        Diagnosis(RunSummary((text,), text, text, text, text), Timing(5, 12_300_000, text), (), {text: text}, health)
    )


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\n",
        "a\rb\n",
        "\x9b31m\n",
        "\u202eabc\n",
        "- a\n  ::error file=a.py::b\n",
        "a ##[error]b\n",
    ],
)
def test_a_terminal_or_a_log_would_obey(text: str) -> None:
    with pytest.raises(Unescaped):
        reports.check_text(text, text)


def test_colour_that_profkit_did_not_write_is_found() -> None:
    reports.check_text("a\n", "\x1b[1ma\x1b[0m\n")
    with pytest.raises(Unescaped, match="escape codes"):
        reports.check_text("a\n", "\x1b]0;a\x07\n")


@pytest.mark.parametrize(
    ("put", "what"),
    [
        ("<script>x</script>", "script"),
        ("<img src=x>", "element <img>"),
        ('<p onclick="x()">', "attribute onclick"),
        ('<a href="javascript:x()">', "address"),
        ('<a href="https://x.invalid">', "address"),
        ("<style>p {}</style>", "style sheet"),
        ("<!-- x -->", "comment"),
        ("<p>a\u202eb</p>", "control character"),
        ("</kanarie>", "end of an element"),
    ],
)
def test_markup_in_a_page_is_found(full_diagnosis: Diagnosis, put: str, what: str) -> None:
    page = render(full_diagnosis, "html")
    reports.check_html(page)
    with pytest.raises(Unescaped, match=what):
        reports.check_html(page.replace("</main>", f"{put}</main>"))


@pytest.mark.parametrize(
    "text",
    ["[a](javascript:x)", "![a](b)", "<b>a</b>", "<!-- a -->b", "> a", "1. a", "    a", "<http://a>", "by @someone"],
)
def test_markup_in_markdown_is_found(text: str) -> None:
    reports.check_markdown("## a\n\n- b: `[a](b)`\n\nmail@x, a@<!-- -->b\n")
    with pytest.raises(Unescaped):
        reports.check_markdown(f"## a\n\n{text}\n")


def test_a_line_that_is_no_annotation_of_profkit_is_found(clean_diagnosis: Diagnosis) -> None:
    text = render(clean_diagnosis, "github")
    reports.check_github(text, clean_diagnosis)
    for more in ("::error title=x::y\n", "text\n"):
        with pytest.raises(Unescaped):
            reports.check_github(text + more, clean_diagnosis)


@pytest.mark.parametrize("uri", ["javascript:x", "a b.py", "a%zz", "http://x/y", "<a>"])
def test_an_address_in_sarif_that_is_none_is_found(uri: str) -> None:
    reports.check_sarif(json.dumps({"uri": "file:///a/b%20c.py", "snippet": {"text": "a[0](b)"}}))
    with pytest.raises(Unescaped, match="address"):
        reports.check_sarif(json.dumps({"uri": uri}))


def test_a_link_in_a_message_of_sarif_is_found() -> None:
    with pytest.raises(Unescaped, match="link"):
        reports.check_sarif(json.dumps({"message": {"text": "see [x](javascript:y)"}}))


def test_numbers_that_json_does_not_have_are_found() -> None:
    with pytest.raises(Unescaped, match="NaN"):
        reports.check_sarif('{"rank": NaN}')
