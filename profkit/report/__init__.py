"""Reports: a diagnosis in, text out. A format's module is imported only when that format is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from profkit.errors import UsageError
from profkit.findings import Diagnosis, Finding

if TYPE_CHECKING:
    from profkit.comparing.values import Comparison


def _fails_nothing(_: Finding) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of some formats: columns and colour (text), the rules' pages by name (HTML, SARIF and JUnit), the
    template of links that open an editor (HTML), and which findings fail the command (JUnit)."""

    width: int = 80
    color: bool = False
    pages: Mapping[str, str] = field(default_factory=dict)
    editor: str = ""
    fails: Callable[[Finding], bool] = _fails_nothing


@dataclass(frozen=True, slots=True)
class Format:
    """One way to render a value: ``function`` in ``profkit.report.<module>``, and the settings it takes."""

    module: str
    function: str
    settings: tuple[str, ...] = ()

    def render(self, value: Diagnosis | Comparison, settings: Settings) -> str:
        function: Callable[..., str] = getattr(import_module(f"profkit.report.{self.module}"), self.function)
        return function(value, **{name: getattr(settings, name) for name in self.settings})


FORMATS: dict[str, Format] = {
    "text": Format("text", "render_text", ("width", "color")),
    "json": Format("json", "render_json"),
    "markdown": Format("markdown", "render_markdown"),
    "html": Format("html.page", "render_html", ("pages", "editor")),
    "sarif": Format("sarif", "render_sarif", ("pages",)),
    "github": Format("github", "render_github"),
    "junit": Format("junit", "render_junit", ("pages", "fails")),
    "memory-timeline": Format("memory_timeline", "render_memory_timeline"),
}


def render(
    diagnosis: Diagnosis,
    format_name: str,
    *,
    width: int = 80,
    color: bool = False,
    pages: Mapping[str, str] | None = None,
    editor: str = "",
    fails: Callable[[Finding], bool] = _fails_nothing,
) -> str:
    """The report in one of `FORMATS`; raises `UsageError` for any other name."""
    if format_name not in FORMATS:
        raise UsageError(f"{format_name}: not a report format; choose from {', '.join(FORMATS)}")
    return FORMATS[format_name].render(diagnosis, Settings(width, color, pages or {}, editor, fails))


COMPARISON_FORMATS: dict[str, Format] = {
    "text": Format("comparison", "render_text", ("width", "color")),
    "json": Format("json", "to_json"),
    "markdown": Format("comparison_markdown", "render_markdown"),
    "html": Format("html.comparison", "render_html"),
}


def render_comparison(comparison: Comparison, format_name: str, *, width: int = 80, color: bool = False) -> str:
    """The comparison in one of `COMPARISON_FORMATS`; raises `UsageError` for any other name."""
    if format_name not in COMPARISON_FORMATS:
        raise UsageError(f"{format_name}: not a comparison format; choose from {', '.join(COMPARISON_FORMATS)}")
    return COMPARISON_FORMATS[format_name].render(comparison, Settings(width, color))
