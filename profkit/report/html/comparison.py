"""A comparison as a page: both steps on one axis, each recorded step a dot, the interval a band."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import floor, log10

from jinja2 import Template
from markupsafe import Markup
from msgspec import Struct

from profkit.core.units import format_count, format_time
from profkit.diagnosis.compare.comparison import Comparison, Move, Side
from profkit.report.comparison import wording
from profkit.report.html.changed_tree import draw_tree
from profkit.report.html.drawing import percent
from profkit.report.html.environment import asset, digest, template

_MOST_DOTS = 200
_MOST_BEYOND = 0.05
"""Of the steps of either side. The axis ends where so few lie beyond: a single one would squeeze all others."""
_STRETCH = 1.5
"""The last few steps belong to the axis if they make it this much longer at most."""
_MARGIN = 1.05
"""So that the longest bar does not touch the end of the axis."""
_LAST_TICK = 0.9
"""Of the axis. A later one has no room for its text."""
_TICKS = 4
"""About as many times of three digits as fit a phone's screen."""


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
    beyond: str


class Tick(Struct, frozen=True):
    """A time on the axis, at ``x`` per cent."""

    x: float
    text: str


def render_html(comparison: Comparison) -> str:
    """The whole page, without a script."""
    style = asset("report.css")
    return _template().render(
        policy=policy(),
        style=Markup(style),  # noqa: S704  # ours, and without </style>
        headline=wording.headline(comparison),
        notes=wording.explanation(comparison),
        sides=_sides(comparison),
        ticks=_ticks(_axis_ns(comparison)),
        findings=[wording.finding_note(move) for move in comparison.findings],
        **draw_tree(comparison.tree, max(comparison.step_time.before_ns, comparison.step_time.after_ns)),
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
    axis_ns = _axis_ns(comparison)
    interval = None
    if time.low is not None and time.high is not None:
        low, high = (percent(time.before_ns * (1 + change) / axis_ns) for change in (time.low, time.high))
        interval = Range(low, round(high - low, 2))
    return [
        _row("before", comparison.before, time.before_ns, axis_ns, None),
        _row("after", comparison.after, time.after_ns, axis_ns, interval),
    ]


def _row(label: str, side: Side, step_ns: int, axis_ns: float, interval: Range | None) -> Row:
    shown = side.step_ns[:_MOST_DOTS]
    dots = tuple(percent(one / axis_ns) for one in shown if one <= axis_ns)
    left = [one for one in shown if one > axis_ns]
    longest = format_time(max(left, default=0))
    beyond = f"{format_count(len(left), 'step')} {label}"
    hue = "now" if label == "before" else "after"
    width = percent(step_ns / axis_ns)
    return Row(label, format_time(step_ns), width, hue, interval, dots, f"{beyond}, up to {longest}" if left else "")


def _axis_ns(comparison: Comparison) -> float:
    """Where the axis ends: past both bars and the interval, and all but a few of each side's steps."""
    time = comparison.step_time
    longest = [time.before_ns, time.after_ns, time.before_ns * (1 + (time.high or 0.0)), 1.0]
    for side in (comparison.before, comparison.after):
        ordered = sorted(side.step_ns)
        usual = ordered[: len(ordered) - max(int(_MOST_BEYOND * len(ordered)), 1)][-1:] or ordered
        longest += [ordered[-1]] if ordered and ordered[-1] <= _STRETCH * max(*longest, *usual) else usual
    return _MARGIN * max(longest)


def _ticks(axis_ns: float) -> list[Tick]:
    """Round times from 0 on, up to about the end of the axis."""
    rough = axis_ns / _TICKS
    size = 10 ** floor(log10(rough))
    step_ns = next(size * times for times in (1, 2, 5, 10) if size * times >= rough)
    return [
        Tick(percent(at * step_ns / axis_ns), format_time(at * step_ns) if at else "0")
        for at in range(_TICKS + 1)
        if at * step_ns <= _LAST_TICK * axis_ns
    ]


@cache
def _template() -> Template:
    return template("comparison.html.j2")
