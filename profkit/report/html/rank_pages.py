"""A page per rank, folded into the report: whom it waits for and who waits for it, where its mean step goes, its steps,
the collectives with the longest waits, problems of its recording, and the command that judges its own code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from profkit.core.units import format_bytes, format_count, format_share, format_time, pick_form
from profkit.findings.values import (
    LATE_BECAUSE,
    CallSummary,
    LaunchSummary,
    RankDetails,
    RankStep,
    RankSummary,
    RankWait,
)
from profkit.report.html.drawing import percent
from profkit.report.html.environment import template
from profkit.report.ranks_wording import group_title, name_of
from profkit.report.wording import place, printable, short_place

_OWN = {
    "input": ("waiting for its DataLoader", "data"),
    "compute": ("computing", "compute"),
    "copy": ("copying between host and device", "copy"),
    "memory": ("its allocator, in the driver", "update"),
    "host": ("the host's own work", "launch"),
    "garbage": ("Python's garbage collector", "late"),
    "contention": ("ready to run, waiting for a CPU of the busy machine", "late"),
    "unknown": ("own time without PyTorch events", "other"),
    "unrecorded": ("own time, not recorded", "other"),
}
"""The name and colour of each cause of own work."""
_WAITING, _EXPOSED = "waiting for other ranks", "communication not hidden by own work"
_UNCOMPARED = "collectives that match no other rank's"
_LEAST_CLOCK_NS = 1_000_000
"""A rank that loses its CPU notes the end of a collective this much later."""
_LEAST_CLOCK_OF_HOST_NS = 10**9
"""Ranks of one host share a clock, unless somebody has changed the file."""
_LEAST_REST = 0.005
_LEAST_COLUMNS = 16
"""Fewer, wider columns would look like another kind of chart."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the mean step: its row in the table, with the median rank's time, and its place in the bar, in per
    cent."""

    label: str
    hue: str
    x: float
    width: float
    time: str
    share: str
    median: str
    line: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A rank's name, what is said about it, and the anchor of its page, empty if it has none."""

    name: str
    words: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A step: pieces from below as (colour, path), the same in words, and from above how long others wait."""

    words: str
    pieces: tuple[tuple[str, str], ...]
    late: str


@dataclass(frozen=True, slots=True)
class Call:
    words: str
    last: Peer | None


def anchors_of(launch: LaunchSummary) -> dict[int, str]:
    """The anchors of the ranks that have a page, by rank."""
    return {one.rank: f"rank-{one.rank}" for one in launch.ranks if one.details is not None}


def render_pages(launch: LaunchSummary) -> Markup:
    """All pages, escaped; empty if no rank has one."""
    anchors = anchors_of(launch)
    known = {one.rank: one for one in launch.ranks if one.details is not None}
    pages = [_page(launch, one, one.details, anchors) for one in known.values() if one.details is not None]
    if not pages:
        return Markup()
    others = [one for one in launch.ranks if one.details is None]
    other = next(filter(None, map(command_for, others)), "")
    return Markup(_template().render(pages=pages, ranks=len(launch.ranks), other=other))  # noqa: S704  # escaped there


def command_for(one: RankSummary) -> str:
    """The command that diagnoses the rank's own code; empty if its recording must be copied first."""
    return "" if "://" in one.source else f"profkit diagnose {printable(shlex.quote(one.source))}"


def _page(launch: LaunchSummary, one: RankSummary, details: RankDetails, anchors: Mapping[int, str]) -> dict[str, Any]:
    """What the template shows of one rank."""
    most_caused_ns = max((step.caused_ns for step in details.steps), default=0)
    return {
        "anchor": anchors[one.rank],
        "title": name_of(one),
        "facts": list(_facts(launch, one)),
        "late": _late(one),
        "awaited_by": list(_awaiting(one, details, anchors)),
        "because": LATE_BECAUSE.get(one.cause, ""),
        "location": one.location,
        "waits": f"{_time(one.waited_ns)} a step",
        "waits_for": list(_peers(details.waits_for, one.waited_ns, anchors)),
        "step": format_time(details.step_ns) if details.step_ns else "",
        "parts": list(_parts(launch, one, details)),
        "bars": list(_bars(details)),
        "steps": _span(details),
        "most_caused": format_time(most_caused_ns) if most_caused_ns else "",
        "calls": [_call(call, one, anchors) for call in details.calls],
        "notes": list(_notes(launch, one, details)),
        "command": command_for(one),
        "is_shown": one.rank == launch.shown_rank,
    }


def _time(time_ns: int) -> str:
    return format_time(time_ns) if time_ns else "0"


def _facts(launch: LaunchSummary, one: RankSummary) -> Iterator[tuple[str, str]]:
    yield "Host", printable(one.host)
    yield "Device", printable(one.device or "")
    yield "Recording", printable(one.source)
    if one.step_time_ns is not None:
        beside = f"; the median rank's {format_time(launch.step_time_ns)}" if launch.step_time_ns else ""
        yield "Step", f"{format_time(one.step_time_ns)}, the median of {format_count(one.steps, 'step')}{beside}"


def _late(one: RankSummary) -> str:
    text = f"{_time(one.caused_ns)} a step"
    if one.late_steps:
        each = " each" if one.late_steps > 1 else ""
        chance = ", which may be chance" if one.is_by_chance else ""
        steps = f"{one.late_steps:,} of {format_count(one.steps, 'step')}"
        text += f"; late in {steps}, by {format_time(one.late_ns)}{each}{chance}"
    if one.kept_waiting:
        text += f"; {format_count(one.kept_waiting, 'rank')} {pick_form(one.kept_waiting, 'waits', 'wait')} for it"
    return text


def _awaiting(one: RankSummary, details: RankDetails, anchors: Mapping[int, str]) -> Iterator[Peer]:
    yield from _peers(details.awaited_by, 0, anchors)
    left = one.kept_waiting - len(details.awaited_by)
    if details.awaited_by and left > 0:
        yield Peer("and", f"{left:,} more", "")


def _peers(waits: Sequence[RankWait], whole_ns: int, anchors: Mapping[int, str]) -> Iterator[Peer]:
    for one in waits:
        yield Peer(f"rank {one.rank}", format_time(one.time_ns), anchors.get(one.rank, ""))
    rest_ns = whole_ns - sum(one.time_ns for one in waits)
    if waits and rest_ns > _LEAST_REST * whole_ns:
        yield Peer("others", format_time(rest_ns), "")


def _parts(launch: LaunchSummary, one: RankSummary, details: RankDetails) -> Iterator[Part]:
    """Own work by cause, what communication adds, and the waits, next to those of the median rank."""
    if not details.step_ns:
        return
    exposed_ns = int(median(each.exposed_ns for each in launch.ranks))
    waited_ns = int(median(each.waited_ns for each in launch.ranks))
    rows = [
        (*_OWN.get(own.cause, (printable(own.cause), "other")), own.time_ns, own.median_ns, own.location)
        for own in details.own
    ]
    rows += [(_EXPOSED, "talk", one.exposed_ns, exposed_ns, None), (_WAITING, "waits", one.waited_ns, waited_ns, None)]
    if details.uncompared_ns > _LEAST_REST * details.step_ns:
        rows.append((_UNCOMPARED, "idle", details.uncompared_ns, -1, None))
    x = 0.0
    for label, hue, time_ns, median_ns, location in rows:
        share = time_ns / details.step_ns
        width = percent(share)
        beside = _time(median_ns) if median_ns >= 0 else ""
        line = short_place(location) if location is not None else ""
        yield Part(label, hue, round(x, 2), width, _time(time_ns), format_share(share), beside, line)
        x += width


def _bars(details: RankDetails) -> Iterator[Bar]:
    longest = max((step.time_ns for step in details.steps), default=0)
    most_caused_ns = max((step.caused_ns for step in details.steps), default=0)
    width = 100 / max(len(details.steps), _LEAST_COLUMNS)
    for at, step in enumerate(details.steps):
        pieces, y = [], 100.0
        rest_ns = max(0, step.time_ns - step.own_ns - step.exposed_ns - step.waited_ns)
        for hue, time_ns in (
            ("compute", step.own_ns),
            ("talk", step.exposed_ns),
            ("waits", step.waited_ns),
            ("idle", rest_ns),
        ):
            height = percent(time_ns / longest) if longest else 0.0
            y -= height
            if height:
                pieces.append((hue, _rectangle(width * at, y, width * 0.8, height)))
        late = percent(step.caused_ns / most_caused_ns) if most_caused_ns else 0.0
        yield Bar(_step_words(step), tuple(pieces), _rectangle(width * at, 0, width * 0.8, late) if late else "")


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.2f} {max(y, 0):.2f}h{width:.2f}v{height:.2f}h-{width:.2f}z"


def _step_words(step: RankStep) -> str:
    own, exposed, waited, caused = map(_time, (step.own_ns, step.exposed_ns, step.waited_ns, step.caused_ns))
    return (
        f"step {step.number}: {format_time(step.time_ns)}, of which own work {own}, communication {exposed}, "
        f"waiting {waited}; others wait {caused}"
    )


def _span(details: RankDetails) -> str:
    if not details.steps:
        return ""
    first, last = details.steps[0], details.steps[-1]
    text = f"step {first.number}: {format_time(first.time_ns)}"
    text += f" … step {last.number}: {format_time(last.time_ns)}" if last is not first else ""
    each = f"; each column shows the longest of {format_count(details.steps_per_column, 'step')}"
    return text + (each if details.steps_per_column > 1 else "")


def _call(call: CallSummary, one: RankSummary, anchors: Mapping[int, str]) -> Call:
    what = printable(call.operation) or "a collective"
    named = f"{what}, {call.number:,} of {call.alike:,} in a step" if call.alike > 1 else what
    size = f", {format_bytes(call.size_bytes)}" if call.size_bytes > 0 else ""
    where = f", {short_place(call.location)}" if call.location is not None else ""
    caused = f"others wait {format_time(call.caused_ns)} for it, " if call.caused_ns else ""
    waited = f"it waits {format_time(call.waited_ns)}, " if call.waited_ns else ""
    words = (
        f"{named}, {group_title(call.group, call.group_size)}{size}{where}: {caused}{waited}"
        f"the transfer takes {_time(call.transfer_ns)}"
    )
    last = f"last in {call.last_steps:,} of {format_count(call.steps, 'step')}"
    if call.last_rank < 0:
        return Call(words, None)
    if call.last_rank == one.rank:
        return Call(words, Peer("it", last, ""))
    return Call(words, Peer(f"rank {call.last_rank}", last, anchors.get(call.last_rank, "")))


def _notes(launch: LaunchSummary, one: RankSummary, details: RankDetails) -> Iterator[str]:
    """What is wrong with the rank's recording, or what it leaves open."""
    yield from map(printable, one.notes)
    head = f"{one.source}: "
    yield from (printable(note.removeprefix(head)) for note in launch.notes if note.startswith(head))
    if any(own.cause == "unrecorded" for own in details.own):
        yield "Only collectives and steps of this rank were recorded, so its other work is unknown."
    if one.steps < launch.steps:
        yield f"Only {one.steps:,} of {format_count(launch.steps, 'step')} were recorded."
    if 0 < len(launch.ranks) < launch.world_size:
        yield (
            f"{len(launch.ranks):,} of {launch.world_size:,} ranks were recorded: it may wait for one of the "
            "others, and one of these for it."
        )
    if details.collectives and details.compared < 1:
        share = format_share(details.compared) if details.compared else "None"
        yield f"{share} of its collectives match another rank's; the waits in the others are unknown."
    yield from _clock(launch, one, details)


def _clock(launch: LaunchSummary, one: RankSummary, details: RankDetails) -> Iterator[str]:
    behind_ns, first = details.clock_behind_ns or 0, launch.ranks[0]
    least_ns = _LEAST_CLOCK_OF_HOST_NS if one.host and one.host == first.host else _LEAST_CLOCK_NS
    if abs(behind_ns) >= least_ns:
        way = "behind" if behind_ns > 0 else "ahead of"
        yield (
            f"Its clock is {format_time(abs(behind_ns))} {way} rank {first.rank}'s, judging by the collectives; no "
            "time here depends on it."
        )


@cache
def _template() -> Template:
    return template("rank_pages.html.j2", {"place": place, "line": printable})
