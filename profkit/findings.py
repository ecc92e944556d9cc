"""What profkit concludes: the values between the rules and the reports.

`Diagnosis` is the one value that every report renders and that ``diagnosis.json`` stores. Times are integer
nanoseconds, sizes bytes, fractions shares of the step time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from profkit.pictures.values import Pictures
from profkit.printing import shown
from profkit.run import CallSite, Sources

SCHEMA = "profkit.diagnosis/1"


class Kind(str, Enum):
    """A fault can be avoided without changing the result; an opportunity also changes numerics or structure."""

    FAULT = "fault"
    OPPORTUNITY = "opportunity"


class Severity(str, Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


_MOST_AROUND = 3
"""Lines before and after the one that is meant."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's code. ``precision`` is ``call`` for the calling line, ``def`` for the function alone.
    ``around`` are lines of the file from number ``around_from`` on, among them this one; none if they were not
    recorded."""

    file: str
    line: int
    function: str
    source: str = ""
    precision: str = "call"
    around: tuple[str, ...] = ()
    around_from: int = 0

    @classmethod
    def of(cls, site: CallSite) -> Location:
        """The place of a marked line."""
        return cls(site.file, site.line, site.function, site.source)

    def within(self, sources: Sources) -> Location:
        """The same with the lines around it, as far as they are known without a gap."""
        known = sources.get(self.file, {})
        first = last = self.line
        if self.line not in known or known[self.line].strip() != self.source:
            return self
        while first - 1 in known and self.line - first < _MOST_AROUND:
            first -= 1
        while last + 1 in known and last - self.line < _MOST_AROUND:
            last += 1
        return replace(self, around=tuple(known[number] for number in range(first, last + 1)), around_from=first)

    @property
    def short(self) -> str:
        """``train.py:31``: the file without its folders, which may be those of another system."""
        name = re.split(r"[\\/]", self.file)[-1] or self.file
        if self.line <= 0:
            return name
        if self.precision == "def" and self.function:
            return f"{name}, in {self.function}"
        return f"{name}:{self.line}"


GROWTH_EVIDENCE = "growth_bytes_per_step"
"""The evidence name of rules whose ``saving.bytes`` is what memory gains with every step."""


MEASURED_EVIDENCE = "measured_factor"
"""The evidence name for findings whose saving rests on an experiment: the share of the time that was left."""


def no_gain_note(rule: str) -> str:
    """The beginning of the health note that an experiment found no gain, so that the rule reports nothing."""
    return f"--measure: {rule} has nothing to report"


@dataclass(frozen=True, slots=True)
class Saving:
    """What the step would gain: time, its share of the step with a likely range, and bytes of memory. With ``of_part``
    only part of a step was recorded, and shares are of that part. ``beyond`` is what is left of ``fraction`` once the
    findings above have given back theirs, as two fixes may free the same time; None where nothing above has a price."""

    time_ns_per_step: int
    fraction: float
    low: float
    high: float
    bytes: int = 0
    of_part: bool = False
    beyond: float | None = None

    @property
    def whole(self) -> str:
        """What ``fraction`` is a share of."""
        return "part that was recorded" if self.of_part else "step"


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    kind: Kind
    severity: Severity
    message: str
    count: int
    confidence: float
    fix: str
    location: Location | None = None
    also: tuple[Location, ...] = ()
    saving: Saving | None = None
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What was run, where and with what."""

    command: tuple[str, ...]
    python: str | None
    torch: str | None
    device: str | None
    started: str | None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A row of the table of where the step's time went."""

    label: str
    time_ns_per_step: int
    fraction: float


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Where much of the step's time goes, at fault or not: a line, from the step that was traced line by line, or an
    operator, by its time on the device if there is one. An optimizer's step is an operator with its line."""

    fraction: float
    location: Location | None = None
    operator: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Step times: the median as recorded, the median without a profiler if it was measured, and their gap.

    ``measured_steps`` are the first and last step behind the figures, as the program counts them from 0.
    ``unprofiled_from`` says whether the time without the profiler was ``measured`` or ``estimated``. ``bound_by`` is
    ``device`` or ``host``, whichever the step waits for. ``device_step_time_ns`` is how long the device works in a
    step, ``host_step_time_ns`` how long the host takes to launch it, without waits for the device.
    ``unprofiled_least_time_ns`` is the shortest that the step without the profiler may be, None where that is as sure
    as the time itself.
    """

    steps: int
    step_time_ns: int | None
    steps_from: str
    unprofiled_step_time_ns: int | None = None
    profiler_overhead_fraction: float | None = None
    shares: tuple[TimeShare, ...] = ()
    measured_steps: tuple[int, int] | None = None
    unprofiled_from: str | None = None
    bound_by: str | None = None
    device_step_time_ns: int | None = None
    host_step_time_ns: int | None = None
    unprofiled_least_time_ns: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """What one worker of a DataLoader did in its ``batches`` after the first, as shares of its time: fetching samples,
    collating them, and waiting for something to do. ``cpu_ns_per_batch`` is that of the whole process.
    ``hand_over_ns_per_batch`` passes alongside, until a batch is pickled and the pipe has room for it.
    ``private_bytes`` is the memory that it alone held at the end, ``private_growth_bytes`` how much more that was than
    after its first batch."""

    loader: int
    worker: int
    batches: int
    time_ns: int
    fetch: float
    collate: float
    waiting: float
    cpu_ns_per_batch: int
    hand_over_ns_per_batch: int
    private_bytes: int | None = None
    private_growth_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """What part of the peak is for one purpose."""

    label: str
    bytes: int
    fraction: float


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """What one line allocated of what was held at the peak, in ``count`` pieces. Without a ``location`` no line is
    known, as of what the backward pass allocates."""

    bytes: int
    fraction: float
    count: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """How much was held for one purpose at each moment of a `MemoryTimeline`."""

    label: str
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """What was held at some moments of the allocator's history: after so many ``entries``, for each purpose, from below
    upwards as a picture stacks them; and what was reserved then."""

    entries: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    parts: tuple[MemorySeries, ...]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a memory snapshot says of one device, in bytes. ``allocated_bytes``, ``reserved_bytes`` and
    ``inactive_split_bytes`` are those of `torch.cuda.memory_stats` at its moment. ``cached_bytes`` lie free in whole
    segments, ``split_bytes`` inside of used ones. Without ``history_entries`` the peak is what is held now. ``peak_ns``
    is when most was held, counted from the beginning of the history, ``history_ns`` how long that is; None where the
    allocator noted no times. ``older_bytes`` were held when the history begins. Of ``lines`` only those that hold most
    are listed."""

    device: int
    allocated_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int
    cached_bytes: int
    split_bytes: int
    peak_bytes: int
    reserved_peak_bytes: int
    older_bytes: int
    history_entries: int = 0
    peak_ns: int | None = None
    history_ns: int | None = None
    parts: tuple[MemoryPart, ...] = ()
    lines: tuple[MemoryLine, ...] = ()
    timeline: MemoryTimeline | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The most that was in use of the memory of one device, or of the host: by tensors, by PyTorch's allocator with
    what it keeps for later tensors, and by all processes (on the host by this one); 0 for what is not known."""

    where: str
    total_bytes: int
    tensor_bytes: int
    reserved_bytes: int
    seen_bytes: int


class VerdictKind(str, Enum):
    FOUND = "found"
    NOTHING_FOUND = "nothing-found"
    CANNOT_JUDGE = "cannot-judge"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The most important thing that a diagnosis says, in one line."""

    kind: VerdictKind
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``total`` is what fixing all faults at once gives back, if more than one has a price. ``workers`` are those of
    DataLoaders that kept an account of themselves. ``cannot_judge`` says why the recording does not show where the
    step's time went, as with an accelerator whose work is not in it; "nothing found" then means nothing. ``hottest``
    says where most of the time goes if nothing important was found: first lines, then operators. ``memory`` is that of
    a memory snapshot, by device. ``failure`` is what ended the program if that was a lack of memory, ``peaks`` how full
    memory was. ``pictures`` are what reports draw. ``ignored`` counts by rule the findings that comments on their lines
    leave out. Old diagnoses have neither a ``verdict`` nor pictures."""

    run: RunSummary
    timing: Timing
    findings: tuple[Finding, ...]
    skipped: Mapping[str, str]
    health: tuple[str, ...]
    total: Saving | None = None
    workers: tuple[WorkerTimes, ...] = ()
    verdict: Verdict | None = None
    cannot_judge: str | None = None
    hottest: tuple[HotSpot, ...] = ()
    memory: tuple[DeviceMemory, ...] = ()
    failure: str | None = None
    peaks: tuple[MemoryPeak, ...] = ()
    pictures: Pictures | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)
    schema: str = SCHEMA

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst fault, or None if there is no fault."""
        faults = [f.severity for f in self.findings if f.kind is Kind.FAULT]
        return min(faults, key=lambda severity: severity.rank, default=None)

    def __str__(self) -> str:
        return shown(self, "text")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return shown(self, "html")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  # IPython's signature
        """What IPython shows in a terminal."""
        printer.text(str(self))


LOW_FROM, MEDIUM_FROM, HIGH_FROM = 0.005, 0.03, 0.10
"""Shares of the step: for less than the first nobody touches a line, for less than the second nobody writes code anew
or holds memory for it; the third shows without a measurement."""


def severity_of(saving: Saving | None, grows_without_bound: bool = False) -> Severity:
    """By what comes free of the step; memory that grows without bound is high."""
    fraction = saving.fraction if saving else 0.0
    if grows_without_bound or fraction >= HIGH_FROM:
        return Severity.HIGH
    if fraction >= MEDIUM_FROM:
        return Severity.MEDIUM
    return Severity.LOW if fraction >= LOW_FROM else Severity.INFO


def is_worth_mending(finding: Finding) -> bool:
    """A fault that is more than information."""
    return finding.kind is Kind.FAULT and finding.severity is not Severity.INFO


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """The faults worth fixing, in their order."""
    return [finding for finding in findings if is_worth_mending(finding)]


def opportunities(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are more than information, in their order."""
    return [finding for finding in notable(findings) if finding.kind is Kind.OPPORTUNITY]


def notable(findings: Iterable[Finding]) -> list[Finding]:
    """The faults and opportunities that are more than information, in their order."""
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def left_beyond(finding: Finding) -> float | None:
    """What is left of the saving once the findings above are mended; None where nothing worth a word is missing."""
    saving = finding.saving
    if saving is None or saving.beyond is None or saving.fraction - saving.beyond < LOW_FROM:
        return None
    return saving.beyond


def grows(finding: Finding) -> bool:
    """Whether ``saving.bytes`` is growth per step, as the rule's evidence says."""
    saving = finding.saving
    return saving is not None and saving.bytes > 0 and GROWTH_EVIDENCE in finding.evidence


def rank(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Worst first."""
    return tuple(findings[at] for at in rank_order(findings))


def rank_order(findings: Sequence[Finding]) -> list[int]:
    """The findings' indices, worst first: by severity, memory that grows until the program dies before time, then by
    what they give back, whatever their kind. Where a fault's gain lies in the likely range of an opportunity's, nobody
    knows which is larger: then the fault comes first, as to mend it changes no result."""
    order: list[int] = []
    for at in sorted(range(len(findings)), key=lambda at: _rank_key(findings[at])):
        place = len(order)
        while place and _is_as_large(findings[at], findings[order[place - 1]]):
            place -= 1
        order.insert(place, at)
    return order


def _is_as_large(fault: Finding, above: Finding) -> bool:
    if fault.kind is not Kind.FAULT or above.kind is not Kind.OPPORTUNITY or fault.severity is not above.severity:
        return False
    if fault.saving is None or above.saving is None or not fault.saving.time_ns_per_step:
        return False
    return above.saving.low <= fault.saving.fraction


def _rank_key(finding: Finding) -> tuple[int, bool, float, int, bool, bool, float, str]:
    saving = finding.saving
    return (
        finding.severity.rank,
        not grows(finding),
        -(saving.fraction if saving else 0.0),
        -(saving.bytes if saving else 0),
        finding.kind is Kind.OPPORTUNITY,
        finding.location is None,
        -finding.confidence,
        finding.rule,
    )
