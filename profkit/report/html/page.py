"""The page: everything escaped, nothing fetched, right on light and dark screens and without its script.

Its Content-Security-Policy forbids everything but the one style sheet and the one script, which it allows by hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from profkit.findings import DeviceMemory, Diagnosis
from profkit.pictures.values import Pictures
from profkit.report.html import drawing
from profkit.report.html.environment import asset, digest, environment
from profkit.report.memory_timeline import draw_timeline
from profkit.report.wording import (
    HOT_LINES,
    HOT_OPERATORS,
    MEMORY_LINES,
    WHAT_TO_CHANGE,
    bound_note,
    cost,
    group_by_reason,
    hot_lines,
    hot_operators,
    ignored_note,
    major_findings,
    memory_figures,
    memory_lines,
    memory_parts,
    memory_title,
    minor_findings,
    opportunities_note,
    place,
    printable,
    printable_lines,
    run_facts,
    skipped_rules,
    step_note,
    verdict,
    worker_lines,
)
from profkit.units import format_count, format_share


def render_html(diagnosis: Diagnosis, pages: Mapping[str, str] | None = None) -> str:
    """The whole page. ``pages`` maps a rule's name to its page, shown folded beside each finding."""
    style, script = asset("report.css"), asset("report.js")
    pictures = diagnosis.pictures or Pictures()
    return _template().render(
        **_words(diagnosis),
        **_pictures(diagnosis, pictures),
        devices=[_of_device(diagnosis, memory) for memory in diagnosis.memory],
        memory_lines=MEMORY_LINES,
        pages=pages or {},
        pictures=pictures,
        policy=policy(),
        style=Markup(style),  # noqa: S704  # ours, and without </style>
        script=Markup(script),  # noqa: S704
    )


def policy() -> str:
    """The Content-Security-Policy of every report, for a server to send with it."""
    style, script = digest(asset("report.css")), digest(asset("report.js"))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


def _words(diagnosis: Diagnosis) -> dict[str, Any]:
    major = major_findings(diagnosis)
    reasons = [(reason, skipped_rules(rules), rules) for reason, rules in group_by_reason(diagnosis.skipped)]
    return {
        "verdict": verdict(diagnosis),
        "step_note": step_note(diagnosis.timing),
        "bound_note": bound_note(diagnosis.timing),
        "what_to_change": WHAT_TO_CHANGE,
        "opportunities_note": opportunities_note(major),
        "major": major,
        "minor": minor_findings(diagnosis),
        "hottest": [
            (HOT_LINES, hot_lines(diagnosis)),
            (HOT_OPERATORS, [(share, name, "") for share, name in hot_operators(diagnosis)]),
        ],
        "workers": worker_lines(diagnosis),
        "facts": run_facts(diagnosis),
        "health": [note for note in (*diagnosis.health, ignored_note(diagnosis)) if note],
        "skipped": [(reason, "" if few == ", ".join(rules) else few, rules) for reason, few, rules in reasons],
    }


def _of_device(diagnosis: Diagnosis, memory: DeviceMemory) -> dict[str, Any]:
    return {
        "title": memory_title(diagnosis, memory),
        "figures": memory_figures(memory),
        "picture": Markup(draw_timeline(memory)),  # noqa: S704  # escapes what it shows
        "parts": [(label, f"{size}, {share}") for label, size, share, _ in memory_parts(memory)],
        "lines": memory_lines(memory),
    }


def _pictures(diagnosis: Diagnosis, pictures: Pictures) -> dict[str, Any]:
    branches = pictures.branches
    inner = "Kernels" if pictures.of_device else "Operators inside operators"
    return {
        "bars": drawing.verdict_bars(diagnosis),
        "stacked": drawing.stacked(diagnosis),
        "columns": drawing.columns(pictures),
        "stripes": drawing.stripes(pictures.lanes),
        "step_labels": drawing.step_labels(pictures),
        "marks": drawing.marks(diagnosis),
        "memory": drawing.memory(pictures),
        "leaves": drawing.leaves(branches),
        "depths": 1 + max((one.depth for one in branches), default=-1),
        "tables": [("Operators", drawing.table(branches, 1)), (inner, drawing.table(branches, 2))],
        "height": drawing.LANE_HEIGHT,
        "mark_width": drawing.MARK_WIDTH,
    }


def render_frame(diagnosis: Diagnosis) -> str:
    """The page in a frame, for use inside another page such as a notebook: their styles do not mix, and nothing in the
    frame may run or be sent."""
    page = escape(render_html(diagnosis), quote=True)
    style = "width: 100%; height: 36rem; border: 0; resize: vertical"
    return f'<iframe sandbox="" title="profkit" style="{style}" srcdoc="{page}"></iframe>'


def _figure(value: float | int | str) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


@cache
def _template() -> Template:
    engine = environment()
    engine.filters.update(
        shown=printable,
        lines=printable_lines,
        line=lambda text: "".join(printable_lines(text)),
        place=place,
        cost=cost,
        share=format_share,
        times=lambda count: format_count(count, "time"),
        figure=_figure,
        whisker=drawing.whisker,
    )
    return engine.from_string(asset("report.html.j2"))
