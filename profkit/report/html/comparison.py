"""A comparison as a page: both steps on one axis, each recorded step a dot, the interval a band."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Template
from markupsafe import Markup
from msgspec import Struct

from profkit.core.units import format_time
from profkit.diagnosis.compare.comparison import Comparison, Move
from profkit.report import comparison_wording as wording
from profkit.report.html.drawing import percent
from profkit.report.html.environment import asset, digest, environment

_MOST_DOTS = 200
_HIGHEST_STEP = 4.0
"""Times the longer median. A longer axis would squeeze all steps to show a single one."""


class Range(Struct, frozen=True):
    x: float
    width: float


class Row(Struct, frozen=True):
    """One side, in per cent of the axis: the bar of its step time, the interval around it, and its steps."""

    label: str
    value: str
    width: float
    hue: str
    range: Range | None
    dots: tuple[float, ...]


def render_html(comparison: Comparison) -> str:
    """The whole page, without a script."""
    style = asset("report.css")
    return _template().render(
        policy=policy(),
        style=Markup(style),  # noqa: S704  # ours, and without </style>
        headline=wording.headline(comparison),
        notes=wording.explanation(comparison),
        sides=_sides(comparison),
        findings=[wording.finding_note(move) for move in comparison.findings],
        lines=_rows(comparison.lines),
        operators=_rows(comparison.operators),
        facts=[("before", wording.side_facts(comparison.before)), ("after", wording.side_facts(comparison.after))],
        differences=wording.difference_notes(comparison),
    )


def policy() -> str:
    """The Content-Security-Policy of every comparison, also for a server's headers."""
    return f"default-src 'none'; style-src '{digest(asset('report.css'))}'; base-uri 'none'; form-action 'none'"


def _rows(moves: Sequence[Move]) -> list[tuple[str, tuple[str, ...]]]:
    return [(wording.move_name(move), wording.move_cells(move)) for move in moves[: wording.MOST_MOVES]]


def _sides(comparison: Comparison) -> list[Row]:
    time = comparison.step_time
    middle = max(time.before_ns, time.after_ns, 1)
    longest = max([middle, *comparison.before.step_ns, *comparison.after.step_ns])
    axis_ns = min(longest, _HIGHEST_STEP * middle)
    interval = None
    if time.low is not None and time.high is not None:
        low, high = (percent(time.before_ns * (1 + change) / axis_ns) for change in (time.low, time.high))
        interval = Range(low, round(high - low, 2))
    before, after = (
        tuple(percent(step_ns / axis_ns) for step_ns in side.step_ns[:_MOST_DOTS])
        for side in (comparison.before, comparison.after)
    )
    return [
        Row("before", format_time(time.before_ns), percent(time.before_ns / axis_ns), "now", None, before),
        Row("after", format_time(time.after_ns), percent(time.after_ns / axis_ns), "after", interval, after),
    ]


@cache
def _template() -> Template:
    return environment().from_string(asset("comparison.html.j2"))
