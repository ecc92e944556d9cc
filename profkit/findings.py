"""What profkit concludes: the values between the rules and the reports.

`Diagnosis` is the one value that every report renders and that ``diagnosis.json`` stores. Times are integer
nanoseconds, sizes bytes, fractions shares of the step time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from profkit.errors import RunDirectoryError
from profkit.pictures.values import Pictures, RankPicture
from profkit.printing import shown
from profkit.run import CallSite, Sources

SCHEMA = "profkit.diagnosis/1"


class Kind(str, Enum):
    """A fault can be avoided without changing the result; an opportunity also changes numerics or structure."""

    FAULT = "fault"
    OPPORTUNITY = "opportunity"


class Severity(str, Enum):
    """How much a finding matters, by what comes free: high from a tenth of the step or for memory that grows without
    bound, medium from 3 %, low from half a per cent, info below. A lower peak of memory counts too."""

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
    """A place in the program's code.

    ``line`` counts from 1; 0 where it is not known. ``source`` is the line's text, without its indentation.
    ``precision`` is ``call`` for the calling line, ``def`` where only the function is known, whose first line ``line``
    is then. ``around`` are lines of the file from number ``around_from`` on, among them this one; none if they were not
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
    """What the step would gain by the fix, as the replay of the recorded step without the fault tells it.

    ``time_ns_per_step`` is how much shorter the step gets, ``fraction`` that as a share of the step (0.25 for a
    quarter), likely between ``low`` and ``high``. ``bytes`` is the memory that comes free at the peak, or with every
    step where memory grows. With ``of_part`` only part of a step was recorded, and shares are of that part.
    ``beyond`` is what is left of ``fraction`` once the findings above have given back theirs, as two fixes may free the
    same time; None where nothing above has a price."""

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
class Change:
    """A fix that is one line: as it is, and as it should be; empty where the line goes."""

    file: str
    line: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change.

    ``rule`` is the name that `profkit explain` takes. ``message`` says what is wrong, ``fix`` what to do, in several
    lines where it holds code; ``change`` is the fix as a line, where the line's own text proves it. ``count`` is how
    often it comes in a step. ``confidence``, 0 to 1, is that of the evidence, not of the price. ``location`` is the
    line to change, None where no single one is at fault; ``also`` are further ones. ``saving`` is None where the
    recording does not tell a price. ``evidence`` are the figures behind the message, by names of the rule's own."""

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
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What was run, where and with what; None for what the recording does not tell. ``started`` is in ISO 8601,
    ``files`` are the recording's, by kind (``trace``)."""

    command: tuple[str, ...]
    python: str | None
    torch: str | None
    device: str | None
    started: str | None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A row of the table of where the step's time went: nanoseconds of one step, and their share of it (0 to 1)."""

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
    """Step times: the median as recorded (``step_time_ns``), the median without a profiler where that is known
    (``unprofiled_step_time_ns``), and by what share recording makes a step longer (``profiler_overhead_fraction``).

    ``steps`` counts the measured ones, and ``steps_from`` says what ended them. ``measured_steps`` are the first and
    last step behind the figures, as the program counts them from 0. ``unprofiled_from`` says whether the time without
    the profiler was ``measured`` or ``estimated``. ``bound_by`` is ``device`` or ``host``, whichever the step waits
    for. ``device_step_time_ns`` is how long the device works in a step, ``host_step_time_ns`` how long the host takes
    to launch it, without waits for the device. ``unprofiled_least_time_ns`` is the shortest that the step without the
    profiler may be, None where that is as sure as the time itself.
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
    """What part of the peak is for one purpose: bytes, and their share of the peak (0 to 1)."""

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


@dataclass(frozen=True, slots=True)
class OwnTime:
    """What of a rank's mean step goes to own work of one ``cause`` (a name of `LATE_BECAUSE`), beside that of the
    median rank of which as much was recorded, and the line that takes longest of it, where it is known."""

    cause: str
    time_ns: int
    median_ns: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class RankWait:
    """The rank at the other end of a wait, and how long that takes in a mean step."""

    rank: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A collective that a rank calls in its steps: the ``number``-th of ``alike`` calls of a step with this group and
    operation. ``size_bytes`` is what the rank puts in, the median of the steps, -1 if unknown. Times are means of the
    ``steps`` that have it: how long the rank waits in it for others, how long others wait in it for the rank, how long
    the transfer takes and how much of that holds up the rank's work. Others waited for ``last_rank`` in ``last_steps``
    of them, more often than for any other; -1 where nobody waited."""

    operation: str
    group: str
    group_size: int
    size_bytes: int
    number: int
    alike: int
    steps: int
    waited_ns: int
    caused_ns: int
    transfer_ns: int
    exposed_ns: int
    last_rank: int
    last_steps: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step of a rank: its length, how much of it is own work, waiting for others and communication that own work
    does not cover, and how long others wait in it for the rank."""

    number: int
    time_ns: int
    own_ns: int
    waited_ns: int
    exposed_ns: int
    caused_ns: int


@dataclass(frozen=True, slots=True)
class RankDetails:
    """Where the time of one rank goes. ``step_ns`` is its mean step, None where its steps are not those of the others;
    it is the sum of ``own``, of the rank's ``waited_ns`` and ``exposed_ns``, and of ``uncompared_ns``, in which it
    stood still for collectives that no other rank's fit. ``waits_for`` are the ranks that it waits for longest,
    ``awaited_by`` those that wait longest for it. Of the ``collectives`` of a step the fraction ``compared`` was found
    in another rank's recording too; ``calls`` are those with the longest waits. Of many steps each of ``steps`` is the
    longest of ``steps_per_column``. ``clock_behind_ns`` is by how much its clock is behind that of the first rank, as
    the collectives tell it; None where none does."""

    step_ns: int | None = None
    own: tuple[OwnTime, ...] = ()
    uncompared_ns: int = 0
    waits_for: tuple[RankWait, ...] = ()
    awaited_by: tuple[RankWait, ...] = ()
    collectives: float = 0.0
    compared: float = 0.0
    calls: tuple[CallSummary, ...] = ()
    steps: tuple[RankStep, ...] = ()
    steps_per_column: int = 1
    clock_behind_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One recorded rank of a launch. It is late in ``late_steps`` of its ``steps``, by ``late_ns`` in the median of
    these, and ``kept_waiting`` others wait for it. ``caused_ns`` is how long a step waits for it, ``waited_ns`` how
    long it waits in a step for others, ``exposed_ns`` how long its communication itself holds up its work; all three
    are means of the steps that it took part in. Ranks that are late together share the wait: each stretch of it counts
    in equal parts as ``caused_ns`` of those that are missing. Waits of a pipeline's stages for each other's messages
    are in ``waited_ns`` alone. ``cause`` names what made it late (`LATE_BECAUSE`), ``location`` the line; empty and
    None where it was not or nothing shows why. ``is_by_chance`` says that its own work is not longer than the others'
    by more than chance. ``host`` and ``device`` are empty and None where the recording does not say. Of many ranks only
    those that others wait for longest, and those that wait longest, have ``details``."""

    rank: int
    source: str
    host: str = ""
    device: str | None = None
    steps: int = 0
    step_time_ns: int | None = None
    late_steps: int = 0
    late_ns: int = 0
    kept_waiting: int = 0
    caused_ns: int = 0
    waited_ns: int = 0
    exposed_ns: int = 0
    cause: str = ""
    location: Location | None = None
    is_by_chance: bool = False
    notes: tuple[str, ...] = ()
    details: RankDetails | None = None


LATE_BECAUSE = {
    "input": "it waits for its DataLoader",
    "compute": "it computes for longer",
    "copy": "it copies between host and device",
    "memory": "its allocator asks the driver for memory or gives it back",
    "host": "its host works while its device stands idle",
    "garbage": "Python's garbage collector runs",
    "unknown": "nothing of PyTorch is recorded meanwhile",
    "unrecorded": "what it does meanwhile was not recorded",
    "contention": "the machine is busy, and it is ready to run but waits for a CPU",
}
"""What makes a rank late, in words."""


@dataclass(frozen=True, slots=True)
class SizeCount:
    """How many collectives of a step put in ``up_to_bytes`` or less (and more than the class below), and how much that
    is; means."""

    up_to_bytes: int
    count: float
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """What a process group of ``size`` ranks, of which ``recorded`` were recorded, moves in a step: how many
    collectives, the bytes that a rank puts in, and the time of the transfers without waiting for the last rank. Bytes
    divided by time is what NCCL's tests call the algorithm's bandwidth."""

    name: str
    size: int
    recorded: int
    collectives_per_step: float
    bytes_per_step: int
    time_ns_per_step: int
    sizes: tuple[SizeCount, ...] = ()


@dataclass(frozen=True, slots=True)
class StageSummary:
    """A stage of a pipeline in a mean step: how long it works, and waits for micro-batches that are not there yet."""

    rank: int
    worked_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """Ranks that pass so many ``micro_batches`` on to each other in a step. ``idle_fraction`` is the share of the step
    in which the mean stage has none to work on, ``even_fraction`` what it would be with stages of equal work:
    (p - 1)/(m + p - 1) for p stages and m micro-batches."""

    stages: tuple[StageSummary, ...]
    micro_batches: int
    idle_fraction: float
    even_fraction: float


@dataclass(frozen=True, slots=True)
class LaunchSummary:
    """Several ranks of one launch, of ``world_size`` in all, -1 if unknown. ``step_time_ns`` is the median rank's.
    ``shown_rank`` is the one whose own code the rest of the diagnosis judges. ``notes`` say what is missing, doubled or
    does not fit. In ``pipelines``, which have their gradients come back, a stage that waits for another's micro-batch
    makes none of them late."""

    world_size: int
    ranks: tuple[RankSummary, ...]
    steps: int = 0
    step_time_ns: int | None = None
    groups: tuple[GroupSummary, ...] = ()
    picture: RankPicture | None = None
    shown_rank: int | None = None
    notes: tuple[str, ...] = ()
    pipelines: tuple[PipelineSummary, ...] = ()


class VerdictKind(str, Enum):
    """Whether there is something to change, nothing was found, or the recording holds too little to tell."""

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
    """What profkit concludes from one recording. Printed, or shown by a notebook, it is the report.

    ``findings`` are ranked: severity, then what they give back. ``skipped`` says of each rule that could not look why;
    a rule that is in neither looked and found nothing. ``health`` is what is wrong with the recording itself.
    ``total`` is what fixing all faults at once gives back, if more than one has a price: less than their sum, as fixes
    overlap.

    ``verdict`` is the first line of the report. ``cannot_judge`` says why the recording does not show where the step's
    time went, as with an accelerator whose work is not in it; "nothing found" then means nothing. ``hottest`` says
    where most of the time goes if nothing important was found: first lines, then operators.

    ``workers`` are those of DataLoaders that kept an account of themselves. ``memory`` is that of a memory snapshot, by
    device. ``failure`` is what ended the program if that was a lack of memory, ``peaks`` how full memory was.
    ``pictures`` are what reports draw. ``ignored`` counts by rule the findings that comments on their lines leave out.
    ``launch`` is what several ranks did together. Old diagnoses have neither a ``verdict`` nor pictures."""

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
    launch: LaunchSummary | None = None
    schema: str = SCHEMA

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst fault, None if there is no fault. Opportunities do not count."""
        faults = [f.severity for f in self.findings if f.kind is Kind.FAULT]
        return min(faults, key=lambda severity: severity.rank, default=None)

    def to_dict(self) -> dict[str, Any]:
        """What ``diagnosis.json`` holds, as dicts, lists, text, numbers, booleans and None.

        ``docs/schemas/diagnosis.schema.json`` tells its form. Keys ending in ``_ns`` are whole nanoseconds, those in
        ``bytes`` bytes, and a ``fraction`` of 0.25 is a quarter of the step.
        """
        found: dict[str, Any] = json.loads(shown(self, "json"))
        return found

    def save(self, path: str | Path) -> None:
        """Write ``diagnosis.json`` to a file, which is replaced if it is there; `profkit.load` reads it back.

        Raises `ProfkitError` where it cannot be written.
        """
        try:
            Path(path).write_text(shown(self, "json"), encoding="utf-8")
        except OSError as error:
            raise RunDirectoryError(path, f"cannot be written: {error.strerror or error}") from error

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
