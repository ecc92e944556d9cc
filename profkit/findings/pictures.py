"""Pictures of the measured steps as reports draw them: a bounded number of columns for a trace of any length.

A row of columns is text with one character per column, from ``A`` (0) to ``/`` (63) in the alphabet of Base64
(RFC 4648). A column takes a byte and needs no escaping.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def levels_of(text: str) -> list[int]:
    """The numbers 0 to 63 of a row of columns; an unknown character counts as 0."""
    return [max(LEVELS.find(character), 0) for character in text]


@dataclass(frozen=True, slots=True)
class Lane:
    """How busy something was: for each column the share of its time, 63 for all. ``fraction`` is the share of the
    whole."""

    label: str
    levels: str
    fraction: float


@dataclass(frozen=True, slots=True)
class StepPicture:
    """A step. ``begin`` and ``end`` are shares of the timeline, 0 to 1, and equal if it is not drawn there. ``parts``
    has the nanoseconds of each of `Pictures.parts`."""

    number: int
    duration_ns: int
    parts: tuple[int, ...]
    begin: float = 0.0
    end: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a finding lies on the timeline: its index in `Diagnosis.findings`, and its spans as shares of the
    timeline."""

    finding: int
    spans: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A line, or a part of the step, and how much of the memory live at the peak it allocated."""

    label: str
    bytes: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """The peak of each column, 63 for ``peak_bytes`` and 0 for ``least_bytes``. If the recording has no totals, both
    are relative to its start. ``holders`` allocated most of what was live at the peak, among the memory allocated since
    then. Tensors grow by ``growth_bytes`` per step, 0 if they do not grow in all. ``step_end_bytes`` are the live bytes
    at the end of each measured step, of many steps the first ones."""

    levels: str
    least_bytes: int
    peak_bytes: int
    holders: tuple[MemoryHolder, ...] = ()
    growth_bytes: int = 0
    step_end_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of the time: a line or function of the program, below it an operator, below that a kernel. ``begin`` and
    ``fraction`` are shares of everything shown; ``source`` is the text of a line."""

    depth: int
    label: str
    begin: float
    fraction: float
    time_ns: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Pictures:
    """``parts`` are the labels of a step's parts. The timeline spans ``duration_ns``. ``branches`` are ordered by depth
    and place; ``levels`` names each depth, and ``of_device`` says that they are time on the device."""

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
    longest), and how long they waited themselves (the median), 63 for the picture's ``most_ns``. ``caused_ns`` and
    ``waited_ns`` are the maxima of both."""

    first: int
    last: int
    caused: str
    waited: str
    caused_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True)
class RankPicture:
    """Who waits for whom. A row is a rank or, if there are many, several; those that others waited for longest get rows
    of their own (``singled_out``). A column is a step, or the longest of ``steps_per_column``; ``steps`` has the first
    number of each column."""

    steps: tuple[int, ...]
    steps_per_column: int
    most_ns: int
    rows: tuple[RankRow, ...]
    singled_out: tuple[RankRow, ...] = ()
