"""Pictures of the measured steps, as reports draw them: a bounded number of columns, whatever the length of the trace.

A row of columns is text with a character each, from ``A`` (0) to ``/`` (63) in the alphabet of Base64 (RFC 4648): it
takes a byte, and may be saved and read as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def levels_of(text: str) -> list[int]:
    """The numbers 0 to 63 of a row of columns; what is no level counts as 0."""
    return [max(LEVELS.find(character), 0) for character in text]


@dataclass(frozen=True, slots=True)
class Lane:
    """What was at work when: for each column the share of its time, 63 for all. ``fraction`` is that of the whole."""

    label: str
    levels: str
    fraction: float


@dataclass(frozen=True, slots=True)
class StepPicture:
    """One step. ``begin`` and ``end`` are shares of the timeline, 0 to 1, and equal where it is not drawn there.
    ``parts`` are nanoseconds for each of `Pictures.parts`."""

    number: int
    duration_ns: int
    parts: tuple[int, ...]
    begin: float = 0.0
    end: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a finding lies on the timeline: its number in the order of `Diagnosis.findings`, and from where to where,
    as shares of the timeline."""

    finding: int
    spans: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A line, or a part of the step, and what it allocated of what was live at the peak."""

    label: str
    bytes: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """The most that was allocated in each column, 63 for ``peak_bytes`` and 0 for ``least_bytes``. Where the recording
    holds no totals, both are relative to its beginning. Of what was allocated since then, the largest ``holders`` made
    most of what was live at the peak. Memory grows by ``growth_bytes`` each step, 0 where it does not grow in all."""

    levels: str
    least_bytes: int
    peak_bytes: int
    holders: tuple[MemoryHolder, ...] = ()
    growth_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of the time: a line or function of the program, below it an operator, below that a kernel. ``begin`` and
    ``fraction`` are shares of all that is shown; ``source`` is the text of a line."""

    depth: int
    label: str
    begin: float
    fraction: float
    time_ns: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Pictures:
    """``parts`` are the labels of what each step consists of; the timeline spans ``duration_ns``. ``branches`` are
    ordered by depth and place; ``levels`` says what each depth is, and ``of_device`` that they are time on the
    device."""

    parts: tuple[str, ...] = ()
    steps: tuple[StepPicture, ...] = ()
    duration_ns: int = 0
    lanes: tuple[Lane, ...] = ()
    marks: tuple[Mark, ...] = ()
    memory: MemoryCurve | None = None
    branches: tuple[Branch, ...] = ()
    of_device: bool = False
    levels: tuple[str, ...] = ("line", "operator", "kernel")


@dataclass(frozen=True, slots=True)
class RankRow:
    """The ranks from ``first`` to ``last`` in each column of steps: how long others waited for one of them (the
    longest), and how long they waited themselves (the median rank), 63 for the picture's ``most_ns``. ``caused_ns`` and
    ``waited_ns`` are the most of each."""

    first: int
    last: int
    caused: str
    waited: str
    caused_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True)
class RankPicture:
    """Who waits for whom: a row for each rank or, where they are many, for several, and one for each of those that were
    waited for longest (``singled_out``). A column is a step, or the longest of ``steps_per_column``; ``steps`` are the
    numbers of the columns' first."""

    steps: tuple[int, ...]
    steps_per_column: int
    most_ns: int
    rows: tuple[RankRow, ...]
    singled_out: tuple[RankRow, ...] = ()
