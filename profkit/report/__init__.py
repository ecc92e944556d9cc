"""A diagnosis becomes text, a page, or a file for another tool. A format is imported only when it is asked for.

Decisions, and why they were made:

- JUnit fails what fails the command. A test case that fails beside a command that passes would give a CI job two
  answers.
- Every SARIF result has a place, if only the script. GitHub refuses a whole file for one result without.
- Formats are checked with the official tool where it can be installed (SARIF's schema, Perfetto's trace processor).
  Elsewhere tests imitate the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from profkit.core.errors import UsageError

if TYPE_CHECKING:
    from profkit.diagnosis.compare.comparison import Comparison
    from profkit.findings.values import Diagnosis, Finding


@dataclass(frozen=True, slots=True)
class Format:
    """One way to render a value: ``function`` in ``profkit.report.<module>``, and the settings it takes."""

    module: str
    function: str
    settings: tuple[str, ...] = ()

    def render(self, value: Diagnosis | Comparison, **settings: Any) -> str:
        function: Callable[..., str] = getattr(import_module(f"profkit.report.{self.module}"), self.function)
        return function(value, **{name: settings[name] for name in self.settings})


PAGES = "pages"
"""The setting of formats that show each rule's page."""
FORMATS: dict[str, Format] = {
    "text": Format("text", "render_text", ("width", "color", "verbose")),
    "json": Format("json", "render_json"),
    "markdown": Format("markdown", "render_markdown", ("verbose",)),
    "html": Format("html.page", "render_html", (PAGES, "editor")),
    "sarif": Format("sarif", "render_sarif", (PAGES,)),
    "github": Format("github", "render_github"),
    "junit": Format("junit", "render_junit", (PAGES, "fails")),
    "agent": Format("agent", "render_agent"),
    "memory-timeline": Format("memory_timeline", "render_memory_timeline"),
}
TRACE_COPY = "perfetto"
"""No rendering of a diagnosis but a copy of its trace with the findings, which `profkit.report.perfetto` writes."""


def render(
    diagnosis: Diagnosis,
    format_name: str,
    *,
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
    pages: Mapping[str, str] | None = None,
    editor: str = "",
    fails: Callable[[Finding], bool] = lambda _: False,
) -> str:
    """The report in one of `FORMATS`; raises `UsageError` for any other name.

    ``width`` and ``color`` are for text, ``verbose`` (why each rule could not look) for text and Markdown, ``pages``
    (each rule's page by its name) for HTML, SARIF and JUnit. ``editor`` is the template of links that open an editor
    (HTML), and ``fails`` says which findings fail the command (JUnit).
    """
    if format_name not in FORMATS:
        raise UsageError(f"{format_name}: not a report format; choose from {', '.join(FORMATS)}")
    return FORMATS[format_name].render(
        diagnosis, width=width, color=color, verbose=verbose, pages=pages or {}, editor=editor, fails=fails
    )


COMPARISON_FORMATS: dict[str, Format] = {
    "text": Format("comparison.text", "render_text", ("width", "color")),
    "json": Format("json", "to_json"),
    "markdown": Format("comparison.markdown", "render_markdown"),
    "html": Format("html.comparison", "render_html"),
}


def render_comparison(comparison: Comparison, format_name: str, *, width: int = 80, color: bool = False) -> str:
    """The comparison in one of `COMPARISON_FORMATS`; raises `UsageError` for any other name."""
    if format_name not in COMPARISON_FORMATS:
        raise UsageError(f"{format_name}: not a comparison format; choose from {', '.join(COMPARISON_FORMATS)}")
    return COMPARISON_FORMATS[format_name].render(comparison, width=width, color=color)
