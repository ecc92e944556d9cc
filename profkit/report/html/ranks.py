"""The page's section on several ranks: who waits for whom, a table of the ranks and one of the process groups."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Template
from markupsafe import Markup
from msgspec import Struct

from profkit.core.units import format_count, format_time
from profkit.findings.pictures import RankPicture, RankRow
from profkit.findings.values import GroupSummary, LaunchSummary, PipelineSummary, RankSummary
from profkit.report.html.drawing import LANE_HEIGHT, outline
from profkit.report.html.environment import template
from profkit.report.ranks_wording import THE_RANKS, bandwidth, group_name, launch_lines, reason, size_parts
from profkit.report.wording import printable

MOST_ROWS = 256
"""Ranks in the table, those that others wait for longest first. A row takes a kilobyte; diagnosis.json has all."""
_MOST_GROUPS = 32
_FEW_ROWS = 16
"""Up to this many, rows of the picture are twice as high."""


def render_ranks(launch: LaunchSummary | None) -> Markup:
    """The section, escaped; empty for a program of one process."""
    if launch is None:
        return Markup()
    from profkit.report.html.rank_pages import anchors_of, render_pages

    anchors = anchors_of(launch)
    ranks = sorted(launch.ranks, key=lambda one: (-one.caused_ns, -(one.step_time_ns or 0), one.rank))
    words: dict[str, Any] = {
        "title": THE_RANKS,
        "lines": launch_lines(launch),
        "notes": [printable(note) for note in launch.notes],
        "rows": [(anchors.get(one.rank, ""), _row(one)) for one in ranks[:MOST_ROWS]],
        "left": len(ranks) - MOST_ROWS,
        "groups": [_group(one) for one in launch.groups[:_MOST_GROUPS]],
        "pipelines": [row for at, one in enumerate(launch.pipelines[:_MOST_GROUPS], 1) for row in _stages(at, one)],
        "left_groups": len(launch.groups) - _MOST_GROUPS,
        "shown": launch.shown_rank,
        "pages": render_pages(launch),
        "picture": None,
    }
    if launch.picture is not None and launch.picture.most_ns > 0:
        words |= _picture(launch.picture, anchors)
    return Markup(_template().render(**words))  # noqa: S704  # the template escapes what it shows


class Cell(Struct, frozen=True):
    """A cell of a table: its text, and the key by which its column sorts."""

    text: str
    order: str


def _row(one: RankSummary) -> list[Cell]:
    late = f"{one.late_steps:,} of {one.steps:,}"
    notes = "; ".join(printable(note) for note in one.notes)
    return [
        Cell(str(one.rank), str(one.rank)),
        _time(one.caused_ns),
        Cell(late, str(one.late_steps)),
        _text("; ".join(part for part in (printable(reason(one)), notes) if part)),
        _time(one.waited_ns),
        _time(one.exposed_ns),
        _time(one.step_time_ns or 0) if one.step_time_ns is not None else Cell("unknown", "0"),
        _text(printable(one.host)),
        _text(printable(one.device or "")),
    ]


def _text(text: str) -> Cell:
    return Cell(text, text or "~")  # what is unknown comes last


def _time(time_ns: int) -> Cell:
    return Cell(format_time(time_ns) if time_ns else "0", str(time_ns))


def _group(one: GroupSummary) -> list[str]:
    sizes = [f"{size}: {count}, {moved}" for size, count, moved in size_parts(one)]
    recorded = f", {one.recorded:,} recorded" if one.recorded < one.size else ""
    return [
        f"{group_name(one)}{recorded}",
        f"{one.collectives_per_step:,.3g}",
        format_time(one.time_ns_per_step),
        bandwidth(one) or "unknown",
        "; ".join(sizes),
    ]


def _stages(number: int, one: PipelineSummary) -> list[list[str]]:
    return [
        [
            str(number),
            f"{one.micro_batches:,}",
            str(at),
            str(stage.rank),
            format_time(stage.worked_ns),
            format_time(stage.idle_ns) if stage.idle_ns else "0",
        ]
        for at, stage in enumerate(one.stages[:_MOST_GROUPS], 1)
    ]


class Stripe(Struct, frozen=True):
    """A row of the picture: two outlines over the columns, the same in words, and the anchor of the rank's page, empty
    if it has none."""

    label: str
    anchor: str
    caused: str
    waited: str
    words: str


def _picture(picture: RankPicture, anchors: Mapping[int, str]) -> dict[str, Any]:
    columns = len(picture.steps)
    parts = [("", [_stripe(picture, row, anchors) for row in picture.rows])]
    if picture.singled_out:
        singled = [_stripe(picture, row, anchors) for row in picture.singled_out]
        parts = [("waited for longest", singled), ("all ranks, in groups", parts[0][1])]
    several = picture.steps_per_column > 1
    numbers = f"steps {picture.steps[0]:,} to {picture.steps[-1]:,}" if columns > 1 else f"step {picture.steps[0]:,}"
    each = f", the longest of {format_count(picture.steps_per_column, 'step')} per column" if several else ""
    return {
        "picture": parts,
        "columns": columns,
        "height": LANE_HEIGHT,
        "row_height": 14 if len(picture.rows) + len(picture.singled_out) > _FEW_ROWS else 28,
        "span": f"{numbers}{each}",
        "most": format_time(picture.most_ns),
    }


def _stripe(picture: RankPicture, row: RankRow, anchors: Mapping[int, str]) -> Stripe:
    label = f"{row.first}" if row.first == row.last else f"{row.first} to {row.last}"
    name = f"rank {label}" if row.first == row.last else f"ranks {label}"
    caused, waited = (format_time(longest_ns) if longest_ns else "0" for longest_ns in (row.caused_ns, row.waited_ns))
    columns = len(picture.steps)
    words = f"{name}: in one step others wait up to {caused} for it, and it waits up to {waited}"
    anchor = anchors.get(row.first, "") if row.first == row.last else ""
    return Stripe(label, anchor, outline(row.caused[:columns]), outline(row.waited[:columns]), words)


@cache
def _template() -> Template:
    return template("ranks.html.j2")
