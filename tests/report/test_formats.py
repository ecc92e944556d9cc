"""Every format renders, with the settings that it knows."""

from __future__ import annotations

import json

import pytest

from profkit.core.errors import UsageError
from profkit.findings.values import Diagnosis
from profkit.report import FORMATS, render


def test_each_format_renders_with_every_setting(full_diagnosis: Diagnosis) -> None:
    for name in set(FORMATS) - {"memory-timeline"}:
        text = render(full_diagnosis, name, width=60, color=True, pages={"retained-graph": "page"})
        assert text.endswith("\n")
        assert "retained-graph" in text


def test_the_formats_are_those_that_the_command_line_names() -> None:
    assert list(FORMATS) == ["text", "json", "markdown", "html", "sarif", "github", "junit", "agent", "memory-timeline"]


def test_settings_are_passed_to_the_format_that_knows_them(full_diagnosis: Diagnosis) -> None:
    assert max(map(len, render(full_diagnosis, "text", width=50).splitlines())) <= 50
    assert "\x1b[" in render(full_diagnosis, "text", color=True)
    assert "about the leak" in render(full_diagnosis, "html", pages={"retained-graph": "about the leak"})
    rules = json.loads(render(full_diagnosis, "sarif", pages={"launch-bound": "page"}))["runs"][0]["tool"]["driver"]
    assert rules["rules"][1]["help"] == {"text": "page"}


def test_an_unknown_format_is_refused_with_the_known_ones(full_diagnosis: Diagnosis) -> None:
    known = "text, json, markdown, html, sarif, github, junit, agent, memory-timeline"
    with pytest.raises(UsageError, match=rf"^pdf: not a report format; choose from {known}$"):
        render(full_diagnosis, "pdf")
