"""The shapes of the page's pictures, in the coordinates that the template draws in.

Positions are percentages of the picture's width, so text keeps its shape on every screen. Only the lanes, which hold no
text, are stretched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10

from msgspec import Struct

from profkit.core.units import format_bytes, format_count, format_share, format_time
from profkit.findings.pictures import LEVELS, Branch, Lane, MemoryCurve, Pictures, levels_of
from profkit.findings.values import (
    Diagnosis,
    Finding,
    Saving,
    Severity,
    WorkerTimes,
    faults,
    grows,
    notable,
)
from profkit.report.wording import printable, worker_lines

LANE_HEIGHT = len(LEVELS) - 1
MARK_WIDTH = 2000
_HUES = (
    ("operators on the host", "other"),
    ("between two queued kernels", "other"),
    ("Python", "other"),
    ("computing", "compute"),
    ("kernels", "compute"),
    ("forward", "compute"),
    ("operators", "compute"),
    ("communicat", "talk"),
    ("cop", "copy"),
    ("waiting for data", "data"),
    ("backward", "backward"),
    ("optimizer", "update"),
    ("waits for the device", "wait"),
    ("API", "launch"),
    ("launching", "launch"),
)
"""A word in a label, and the colour of what it names: the same thing has one colour in all pictures."""
_LEVEL_HUES = ("module", "line", "operator", "kernel")
_MOST_BARS = 4
_LEAST_COLUMNS = 16
"""Fewer, wider columns would look like another kind of chart."""
_LEAST_BAR = 6.0
"""Per cent of the height. The least would not be seen at all."""
_MOST_OF_GROWTH = 0.5
"""Of the growth that the verdict names. What holds it otherwise, such as autograd's nodes, is no memory of tensors, and
bars of the rest would show something else."""
_MOST_TICKS = 6
"""In 80 pixels a line of text fits every 16."""
_TOP, _APART = 12, 25
"""Per cent of these 80 pixels. Nearer to the top a text stands 8 pixels lower, and needs 20 to the next."""
_MOST_NUMBERS = 8
"""Of steps of four digits in 290 pixels."""
_LEAST_LABEL = 9.0
"""Per cent of the width. A narrower branch has no room for a name."""


class Piece(Struct, frozen=True):
    """A rectangle from ``x``, ``width`` wide, in per cent, with its colour's class, its label and its value."""

    x: float
    width: float
    hue: str
    label: str
    value: str


class Bar(Struct, frozen=True):
    """A step's length in per cent of now: now, or after a change, with its likely range."""

    label: str
    value: str
    width: float
    low: float
    high: float
    is_now: bool


def verdict_bars(diagnosis: Diagnosis) -> list[Bar]:
    """The step as it is, and after the changes with the largest gains."""
    timing = diagnosis.timing
    chosen = [
        (one, one.saving) for one in notable(diagnosis.findings) if one.saving and one.saving.time_ns_per_step > 0
    ]
    step_ns = timing.unprofiled_step_time_ns or timing.step_time_ns
    if not step_ns or not chosen or any(saving.of_part for _, saving in chosen):
        return []
    fixable = len(faults(one for one, _ in chosen))
    bars = [Bar("now", format_time(step_ns), 100.0, 100.0, 100.0, True)]
    if fixable > 1 and diagnosis.total is not None:
        bars.append(_after(f"without {format_count(fixable, 'fault')}", step_ns, diagnosis.total))
    singly = [_after(f"without {one.rule}", step_ns, saving) for one, saving in chosen]
    return [*bars, *singly][:_MOST_BARS]


def _after(label: str, step_ns: int, saving: Saving) -> Bar:
    left, least, most = (max(0.0, 1 - min(share, 1.0)) for share in (saving.fraction, saving.high, saving.low))
    span = f" ({format_time(step_ns * least)} to {format_time(step_ns * most)})" if least != most else ""
    span = f" (at most {format_time(step_ns * most)})" if span and not least else span  # no step takes no time
    value = f"{format_time(step_ns * left)}{span}"
    return Bar(printable(label), value, percent(left), percent(least), percent(most), False)


def percent(share: float) -> float:
    """A share from 0 to 1 in per cent of a picture's width."""
    return round(100 * min(max(share, 0.0), 1.0), 2)


def whisker(finding: Finding) -> Bar | None:
    """The finding's share of the step, with its range; None if it saves no time."""
    saving = finding.saving
    if saving is None or saving.fraction <= 0:
        return None
    value = format_share(saving.fraction)
    return Bar("", value, percent(saving.fraction), percent(saving.low), percent(saving.high), False)


def stacked(diagnosis: Diagnosis) -> list[Piece]:
    """Where the step's time went, as a single bar."""
    pieces, x = [], 0.0
    for share in diagnosis.timing.shares:
        width = round(100 * min(max(share.fraction, 0.0), 1.0), 3)
        label = printable(share.label)
        value = f"{format_share(share.fraction)}, {format_time(share.time_ns_per_step)}"
        pieces.append(Piece(round(x, 3), width, hue(label), label, value))
        x += width
    return pieces


def hue(label: str) -> str:
    return next((name for word, name in _HUES if word in label), "idle" if label.startswith("idle") else "other")


class WorkerBar(Struct, frozen=True):
    """What a DataLoader's worker did, as a bar and in words."""

    label: str
    pieces: tuple[Piece, ...]
    line: str


def worker_bars(diagnosis: Diagnosis) -> list[WorkerBar]:
    several = len({worker.loader for worker in diagnosis.workers}) > 1
    lines = worker_lines(diagnosis)
    return [
        WorkerBar(f"{f'{one.loader}.' if several else ''}{one.worker}", tuple(_pieces_of_worker(one)), line)
        for one, line in zip(diagnosis.workers, lines, strict=False)
    ]


def _pieces_of_worker(worker: WorkerTimes) -> Iterator[Piece]:
    x = 0.0
    for label, name, share in (
        ("fetching", "compute", worker.fetch),
        ("collating", "copy", worker.collate),
        ("waiting", "idle", worker.waiting),
    ):
        width = percent(share)
        yield Piece(round(x, 2), width, name, label, format_share(share))
        x += width


class Column(Struct, frozen=True):
    """A step: a stack of pieces from below, in per cent of the longest step."""

    x: float
    width: float
    label: str
    pieces: tuple[Piece, ...]


def columns(pictures: Pictures) -> list[Column]:
    """A column for each step."""
    longest = max((sum(step.parts) for step in pictures.steps), default=0)
    if len(pictures.steps) <= 1 or not longest:
        return []
    width = 100 / max(len(pictures.steps), _LEAST_COLUMNS)
    return [
        Column(
            round(width * at, 3),
            round(width * 0.8, 3),
            f"step {step.number}: {format_time(step.duration_ns)}",
            tuple(_stack(pictures, step.parts, longest)),
        )
        for at, step in enumerate(pictures.steps)
    ]


class Tick(Struct, frozen=True):
    """A round time beside the columns: ``y`` per cent from above, and as text."""

    y: float
    text: str


def column_labels(pictures: Pictures) -> list[Label]:
    """The numbers of the steps below their columns, as many as fit a phone's screen."""
    drawn = columns(pictures)
    every = max(1, -(-len(drawn) // _MOST_NUMBERS))
    return (
        [
            Label(round(column.x + column.width / 2, 3), str(step.number))
            for at, (column, step) in enumerate(zip(drawn, pictures.steps, strict=True))
            if at % every == 0
        ]
        if drawn
        else []
    )


def column_ticks(pictures: Pictures) -> list[Tick]:
    """Round times up to the longest step, two to five of them. The text of one at the top stands lower: it is left out
    where it would meet the next one."""
    longest = max((sum(step.parts) for step in pictures.steps), default=0)
    if longest <= 0:
        return []
    size = 10 ** floor(log10(longest))
    each = next((size * share for share in (0.2, 0.5) if longest / (size * share) < _MOST_TICKS), 2.0 * size)
    spacing = 100 * each / longest
    ticks = [(round(100 - at * spacing, 2), format_time(at * each)) for at in range(1, int(longest / each) + 1)]
    return [Tick(y, text) for y, text in ticks if y >= _TOP or spacing >= _APART]


def _stack(pictures: Pictures, parts: Sequence[int], longest: int) -> Iterator[Piece]:
    y = 100.0
    for label, time_ns in zip(pictures.parts, parts, strict=False):
        height = 100 * time_ns / longest
        y -= height
        if height > 0:
            yield Piece(round(y, 2), round(height, 2), hue(label), printable(label), format_time(time_ns))


class Stripe(Struct, frozen=True):
    """A lane of the timeline: its outline as an SVG path over ``columns`` by `LANE_HEIGHT`."""

    label: str
    share: str
    hue: str
    path: str
    columns: int


def stripes(lanes: Sequence[Lane]) -> list[Stripe]:
    return [
        Stripe(printable(one.label), format_share(one.fraction), hue(one.label), outline(one.levels), len(one.levels))
        for one in lanes
    ]


def outline(levels: str) -> str:
    """An SVG path around a row of columns. Equal columns are a single line, so a quiet lane takes a few characters."""
    path, before, run = [f"M0 {LANE_HEIGHT}"], 0, 0
    for level in levels_of(levels):
        if level != before:
            path.append(f"{f'h{run}' if run else ''}v{before - level}")
            before, run = level, 0
        run += 1
    return "".join([*path, f"h{run}v{before}z"])


class Spans(Struct, frozen=True):
    """Where a finding lies on the timeline, and its place among the findings."""

    number: int
    rule: str
    severity: str
    path: str


def marks(diagnosis: Diagnosis) -> list[Spans]:
    """The findings to act on that lie on the timeline."""
    drawn = {mark.finding: mark.spans for mark in diagnosis.pictures.marks} if diagnosis.pictures else {}
    shown = [at for at, one in enumerate(diagnosis.findings) if one.severity is not Severity.INFO]
    return [_spans(number, diagnosis.findings[at], drawn[at]) for number, at in enumerate(shown, 1) if at in drawn]


def _spans(number: int, finding: Finding, spans: Sequence[tuple[float, float]]) -> Spans:
    edges = ((MARK_WIDTH * begin, MARK_WIDTH * end) for begin, end in spans)
    path = "".join(f"M{begin:g} 0H{end:g}V{LANE_HEIGHT}H{begin:g}z" for begin, end in edges)
    return Spans(number, printable(finding.rule), finding.severity.value, path)


class Label(Struct, frozen=True):
    """A word over the timeline, at ``x`` per cent."""

    x: float
    text: str


def step_labels(pictures: Pictures) -> list[Label]:
    return [Label(round(100 * step.begin, 3), str(step.number)) for step in pictures.steps if step.end > step.begin]


def step_edges(pictures: Pictures) -> list[int]:
    """Where a step begins, but for the first, in the units of `MARK_WIDTH`."""
    return [round(MARK_WIDTH * step.begin) for step in pictures.steps if 0 < step.begin < step.end]


class Curve(Struct, frozen=True):
    """Memory over time as a path, and its figures as text. ``holders`` are bars in per cent of the largest."""

    path: str
    columns: int
    peak: str
    least: str
    growth: str
    holders: tuple[Piece, ...]


def memory(pictures: Pictures) -> Curve | None:
    curve = pictures.memory
    if curve is None:
        return None
    peak, least = format_bytes(curve.peak_bytes), format_bytes(curve.least_bytes)
    growth = format_bytes(curve.growth_bytes) if curve.growth_bytes > 0 else ""
    return Curve(outline(curve.levels), len(curve.levels), peak, least, growth, tuple(_holders(curve)))


class StepEnd(Struct, frozen=True):
    """A step as a bar, in per cent of the picture."""

    label: str
    value: str
    x: float
    width: float
    height: float


class Ends(Struct, frozen=True):
    """The memory at the end of each step, as bars from the least to the most, with both as text."""

    bars: tuple[StepEnd, ...]
    least: str
    most: str


def step_ends(diagnosis: Diagnosis) -> Ends | None:
    """For a verdict that memory grows: the live bytes from step to step; None for any other verdict, or if they are not
    known, all the same, or hardly any of the growth."""
    pictures, growing = diagnosis.pictures, next(filter(grows, notable(diagnosis.findings)), None)
    curve = pictures.memory if pictures is not None else None
    ends = curve.step_end_bytes if curve is not None else ()
    if len(ends) < 2 or min(ends) == max(ends) or growing is None:
        return None
    if growing.saving is not None and ends[-1] - ends[0] < _MOST_OF_GROWTH * growing.saving.bytes * (len(ends) - 1):
        return None
    low, high = min(ends), max(ends)
    width = 100 / len(ends)
    numbers = [step.number for step in pictures.steps] if pictures is not None else []
    bars = []
    for at, held in enumerate(ends):
        height = _LEAST_BAR + (100 - _LEAST_BAR) * (held - low) / (high - low)
        label = f"step {numbers[at]}" if len(numbers) == len(ends) else f"step {at + 1} of those recorded"
        bars.append(StepEnd(label, format_bytes(held), round(width * at, 3), round(width * 0.8, 3), round(height, 2)))
    return Ends(tuple(bars), format_bytes(low), format_bytes(high))


def _holders(curve: MemoryCurve) -> Iterator[Piece]:
    largest = max((one.bytes for one in curve.holders), default=0)
    for one in curve.holders:
        label = printable(f"{one.label} {one.source}")
        yield Piece(0.0, percent(one.bytes / max(largest, 1)), "backward", label, format_bytes(one.bytes))


class Leaf(Struct, frozen=True):
    """A branch of the icicle as a rectangle."""

    x: float
    width: float
    y: int
    hue: str
    name: str
    text: str
    title: str


class Levels(Struct, frozen=True):
    """The icicle's title, and its levels in words."""

    title: str
    explained: str


def explain_levels(levels: Sequence[str], of_device: bool) -> Levels:
    known = [level for level in _LEVEL_HUES if level in levels and (level != "kernel" or of_device)]
    time = "Time on the device" if of_device else "Time of operators on the main thread"
    inner = "" if of_device else ", and what these call"
    missing = "" if "module" in known else " No modules were recorded."
    title = f"Time by {', '.join(known[:-1])} and {known[-1]}" if len(known) > 1 else "Time by operator"
    return Levels(title, f"{time}. From the top: {'s, '.join(known)}s{inner}.{missing}")


def leaves(pictures: Pictures) -> list[Leaf]:
    return [_leaf(one, pictures.levels) for one in pictures.branches]


def _leaf(branch: Branch, levels: Sequence[str]) -> Leaf:
    level = levels[branch.depth] if 0 <= branch.depth < len(levels) else ""
    name = printable(f"{branch.label} {branch.source}")
    return Leaf(
        round(100 * branch.begin, 3),
        round(100 * branch.fraction, 3),
        max(branch.depth, 0),
        level if level in _LEVEL_HUES else "kernel",
        name,
        name if 100 * branch.fraction >= _LEAST_LABEL else "",
        f"{name}: {format_time(branch.time_ns)}, {format_share(branch.fraction)}",
    )


class Row(Struct, frozen=True):
    """A row of a table: a name, its time in nanoseconds for sorting, and both in words."""

    name: str
    time_ns: int
    time: str
    share: str


def table(pictures: Pictures, level: str, most: int = 12) -> list[Row]:
    """The names that take the most time on one level, the branches of each name added up."""
    sums: dict[str, tuple[int, float]] = {}
    for one in pictures.branches:
        if one.depth >= 0 and pictures.levels[one.depth : one.depth + 1] == (level,):
            time_ns, fraction = sums.get(one.label, (0, 0.0))
            sums[one.label] = time_ns + one.time_ns, fraction + one.fraction
    largest = sorted(sums.items(), key=lambda item: -item[1][0])[:most]
    return [
        Row(printable(name), time_ns, format_time(time_ns), format_share(fraction))
        for name, (time_ns, fraction) in largest
    ]
