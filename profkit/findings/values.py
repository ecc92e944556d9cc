"""What profkit concludes: the values between the rules and the reports.

`Diagnosis` is what every report renders and what ``diagnosis.json`` stores. Times are integer nanoseconds, sizes are
bytes, and a fraction is a share of the step (0.25 is a quarter).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from profkit.core.errors import RunDirectoryError
from profkit.core.printing import shown
from profkit.core.units import format_long_time
from profkit.findings.accounts import Account
from profkit.findings.pictures import Pictures, RankPicture
from profkit.findings.roofline import Roofline
from profkit.findings.serving import EngineSteps
from profkit.run.directory import CallSite, Sources

SCHEMA = "profkit.diagnosis/1"


class Kind(str, Enum):
    """A fault can be fixed without changing the result; an opportunity also changes numerics or structure."""

    FAULT = "fault"
    OPPORTUNITY = "opportunity"


class Severity(str, Enum):
    """How much a finding matters, by what fixing it gives back: high from 10 % of the step or for memory that is full
    within a day, medium from 3 % or within a week, low from 0.5 % or if it grows at all, info below. A lower memory
    peak counts too. An opportunity is high only if the low end of its range is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(Severity).index(self)


_MOST_AROUND = 3
"""Lines shown before and after the finding's own."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the program's code.

    ``line`` counts from 1; 0 if unknown. ``source`` is the text of the line without its indentation. ``precision`` is
    ``call`` if ``line`` is the line that makes the call, ``def`` if only the function is known; ``line`` is then its
    first. ``around`` are the lines of the file from number ``around_from`` on, this one among them; empty if they were
    not recorded."""

    file: str
    line: int
    function: str
    source: str = ""
    precision: str = "call"
    around: tuple[str, ...] = ()
    around_from: int = 0

    @classmethod
    def of(cls, site: CallSite) -> Location:
        """The location of a recorded line."""
        return cls(site.file, site.line, site.function, site.source)

    @classmethod
    def in_function(cls, site: CallSite) -> Location:
        """The location of something in a function, of which no more than the ``def`` is known."""
        return cls(site.file, site.line, site.function, site.source, precision="def")

    def within(self, sources: Sources) -> Location:
        """The same location with the lines around it, up to the first that was not recorded, without empty lines at
        their edges."""
        known = sources.get(self.file, {})
        first = last = self.line
        if self.line not in known or known[self.line].strip() != self.source:
            return self
        while first - 1 in known and self.line - first < _MOST_AROUND:
            first -= 1
        while last + 1 in known and last - self.line < _MOST_AROUND:
            last += 1
        while first < self.line and not known[first].strip():
            first += 1
        while last > self.line and not known[last].strip():
            last -= 1
        return replace(self, around=tuple(known[number] for number in range(first, last + 1)), around_from=first)

    @property
    def short(self) -> str:
        """``train.py:31``: without folders, as the path may be one of another system."""
        name = re.split(r"[\\/]", self.file)[-1] or self.file
        if self.line <= 0:
            return name
        if self.precision == "def" and self.function:
            return f"{name}, in {self.function}"
        return f"{name}:{self.line}"


GROWTH_EVIDENCE = "growth_bytes_per_step"
"""A rule's evidence has this name if ``saving.bytes`` is growth per step."""

FULL_AFTER_EVIDENCE = "ns_until_memory_is_full"
"""At the pace of the measured steps, for memory that grows."""

_DAY_NS = 86_400 * 10**9
_YEAR_NS = 365 * _DAY_NS
_FULL_SOON, _FULL_LATER = _DAY_NS, 7 * _DAY_NS
"""Most trainings that are left alone run overnight, and few for more than a week without a restart."""

SHARE_OF_TIME = "share_of_time"
"""What some steps take beyond the usual one, as a share of all the time. A recording of usual steps has no price."""

ASKED_EVIDENCE, HELD_EVIDENCE, HELD_FOR_EVIDENCE = "asked_bytes", "held_bytes", "bytes_of_"
"""Of memory that ran out: what was asked for, what was held, and how the names begin of what it was held for."""

MEASURED_EVIDENCE = "measured_factor"
"""A finding priced by an experiment has this evidence: the share of the time that the fix left."""


def no_gain_note(rule: str) -> str:
    """The beginning of the health note that an experiment found no gain, so the rule reports nothing."""
    return f"--measure: {rule} has nothing to report"


@dataclass(frozen=True, slots=True)
class Saving:
    """What fixing a finding gives back: the recorded step is replayed without the fault.

    ``time_ns_per_step`` is how much shorter the step gets, ``fraction`` the same as a share of the step, likely between
    ``low`` and ``high``. ``bytes`` is the memory that becomes free at the peak, or per step if memory grows. If
    ``of_part`` is set, only part of a step was recorded, and the shares are of that part. ``beyond`` is the fraction
    that is left once the findings above are fixed, as two fixes may free the same time; None if no finding above has a
    price. ``run_ns`` is set where the fix shortens the run, not the step: the time that the whole run gets shorter, of
    which the shares then are."""

    time_ns_per_step: int
    fraction: float
    low: float
    high: float
    bytes: int = 0
    of_part: bool = False
    beyond: float | None = None
    run_ns: int = 0

    @property
    def time_ns(self) -> int:
        """The time that becomes free, in a step or in the run."""
        return self.run_ns or self.time_ns_per_step

    @property
    def whole(self) -> str:
        """What ``fraction`` is a share of."""
        if self.run_ns:
            return "run"
        return "part that was recorded" if self.of_part else "step"


@dataclass(frozen=True, slots=True)
class Change:
    """A fix of one line: ``before`` as it is, ``after`` as it should be; empty if the line should go."""

    file: str
    line: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change.

    ``rule`` is the name that `profkit explain` takes. ``message`` says what is wrong, ``fix`` what to do about it, with
    code on lines of its own. ``change`` is the fix as a changed line, if the text of the line proves that it fits.
    ``count`` is how often it happens per step. ``confidence`` (0 to 1) is that of the evidence, not of the price.
    ``location`` is the line to change, None if no single line is at fault; ``also`` are related lines. ``saving`` is
    None if the recording does not show a price. ``evidence`` are the figures behind the message, by name. ``account``
    is how the time of the saving came about, None if no time was predicted. ``in_run`` are the times, from and until in
    nanoseconds since the start of the process, at which the whole run was seen at its lines."""

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
    account: Account | None = None
    in_run: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What was run, where and with what; None for what the recording does not show. ``started`` is in ISO 8601.
    ``files`` are the names of the recording's files by kind (``trace``); ``recording`` is the path of one that lies
    elsewhere."""

    command: tuple[str, ...]
    python: str | None
    torch: str | None
    device: str | None
    started: str | None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A row of the table of where the step's time goes: nanoseconds per step, and their share of the step."""

    label: str
    time_ns_per_step: int
    fraction: float


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Where much of the step's time goes, at fault or not. Either a line, with the share of the step that was traced
    line by line, or an operator, with its share on the device (on the host without one). An optimizer's step is an
    operator that also has a line."""

    fraction: float
    location: Location | None = None
    operator: str = ""


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """What the device's kernels of one family take: ``step_ns`` of a step of median length, which is that ``fraction``
    of the time of all kernels, in ``count`` kernels. Most of it goes to kernels called ``name``, which take
    ``name_fraction`` of the time of all kernels. Kernels that run at once count one by one."""

    family: str
    step_ns: int
    fraction: float
    count: float
    name: str
    name_fraction: float


class Activity(str, Enum):
    """What a place of the program does with its time: ``products`` of matrices and convolutions, other ``operators``,
    ``small-operators`` that take no longer than it takes to start one, ``launching`` while the device idles,
    ``waiting`` for the device, ``exchange`` with other ranks, and ``python`` for all that PyTorch does not record."""

    PRODUCTS = "products"
    OPERATORS = "operators"
    SMALL = "small-operators"
    LAUNCHING = "launching"
    UPDATE = "update"
    COPIES = "copies"
    LOADING = "loading"
    WAITING = "waiting"
    EXCHANGE = "exchange"
    PYTHON = "python"


class Peak(str, Enum):
    """Where the peak rates of the device are known from. ``own``: nobody measured them, so the program's own fastest
    product stands for the peak, or what any processor reaches if that is more."""

    MEASURED = "measured"
    DATA_SHEET = "data-sheet"
    OWN = "own"


GOOD_RATE = 0.5
"""Of the peak. Large products reach half to nine tenths of it on GPUs (`float64_compute`), and on CPUs the peak is that
of one square product, measured. Above half, a place cannot even become twice as fast."""


@dataclass(frozen=True, slots=True)
class Doing:
    """One activity of a place: its share of the step and, for operators, the name of the one that takes most of it and
    how many run per step. ``of_peak`` is the rate reached, as a share of the device's peak: of its matrix products, or
    for other operators of its memory; None if shapes or the peak are unknown."""

    activity: Activity
    fraction: float
    name: str = ""
    count: int = 0
    of_peak: float | None = None
    peak_from: Peak | None = None


@dataclass(frozen=True, slots=True)
class CostlyPlace:
    """A place of the program that takes much of the step, with what it ran in the backward pass.

    ``fraction`` is its share of the measured steps. ``bound`` is how much shorter the step would be without the place:
    nobody gains more there. It is a line, or a function (``location.precision`` is ``def``); without a ``location`` it
    is an operator, a range or a kernel called ``name``, or if that is empty, all that no line is known of. ``does``
    says what with, the most first. ``is_explained`` says that the place needs its time for what it does, as far as
    anybody can tell from a recording. If not, ``unjudged`` says what the recording does not show, empty if it shows
    all."""

    fraction: float
    bound: float
    location: Location | None = None
    name: str = ""
    does: tuple[Doing, ...] = ()
    is_explained: bool = False
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """What a link carries in collectives of one ``operation`` among so many ``ranks``, by the measure of nccl-tests
    (bus bandwidth). ``count`` are those in the measured steps into which a rank puts a megabyte or more, ``size_bytes``
    and ``each_ns`` medians of them. ``bytes_per_s`` is a median and holds waits for other ranks, ``best_bytes_per_s``
    that of the fastest. ``is_local`` says whether the ranks may be those of one machine: at most eight neighbours, as
    far as told. ``link_bytes_per_s`` is what the links between such devices carry, if the fastest call stays far below
    that, else 0; ``could_save_ns`` is what a step would gain at most at three quarters of it."""

    operation: str
    ranks: int
    count: int
    size_bytes: int
    each_ns: int
    bytes_per_s: float
    best_bytes_per_s: float
    is_local: bool = False
    link_bytes_per_s: float = 0.0
    could_save_ns: int = 0


@dataclass(frozen=True, slots=True)
class BesideCommunication:
    """Kernels of the same operators and shapes that run beside collectives and alone: how many of either were compared
    in the measured steps, and how many times as long they take beside them. ``time_ns`` is what that costs those
    compared, per step."""

    beside: int
    alone: int
    ratio: float
    time_ns: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Step times, in nanoseconds.

    ``step_time_ns`` is the median as recorded, or the mean if the device bounds the steps and has different work in
    them. ``unprofiled_step_time_ns`` is the median without a profiler (the mean if steps alternate between short and
    long), None if unknown; ``unprofiled_from`` says whether that was ``measured`` or ``estimated``.
    ``unprofiled_least_time_ns`` is the shortest that it may be and ``unprofiled_most_time_ns`` the longest, None if it
    is about as certain as a measurement. ``profiler_overhead_fraction`` is how much longer recording makes a step
    (0.25: a quarter).

    ``steps`` counts the measured steps, ``steps_from`` says what ends one, and ``measured_steps`` are the numbers of
    the first and the last, as the program counts them from 0. ``shares`` say where the time goes. ``bound_by`` is
    what the step waits for, by these shares: ``device``, ``host``, ``mixture`` if neither alone, or ``unrecorded``.
    ``device_step_time_ns`` is how long the device works per step, ``host_step_time_ns`` how long the host takes to
    launch a step, without waits for the device. ``communication_ns`` is how long the devices exchange data per step,
    ``communication_hidden`` the share of that in which something is computed; None if they exchange nothing.
    ``recorded_bound_by`` is what the step waits for as recorded, and ``recorded_shares`` are its shares; both are left
    out without a device. ``held_up_step_time_ns`` is what the steps without a profiler took if that is longer than the
    recorded ones: something else held them up, and ``unprofiled_step_time_ns`` is then the recorded step.
    ``exchange_rates`` are those of the collectives, the ones with most time first. ``beside_communication`` is what
    collectives do to the computing beside them, None if that cannot be compared.
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
    communication_ns: int | None = None
    communication_hidden: float | None = None
    recorded_bound_by: str | None = None
    recorded_shares: tuple[TimeShare, ...] = ()
    unprofiled_most_time_ns: int | None = None
    held_up_step_time_ns: int | None = None
    exchange_rates: tuple[ExchangeRate, ...] = ()
    beside_communication: BesideCommunication | None = None


@dataclass(frozen=True, slots=True)
class PhaseLine:
    """A line of the program and the time that it takes in a phase of the run."""

    location: Location
    time_ns: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of the run: its time, its share of the run without profkit's own part (that part's is of all), and the
    CPU time of the main thread within it, None if unknown. ``lines`` are those with most of its time, the largest
    first. If it is ``in_steps``, the recorded steps hold its work as well: each has an evaluation of its own."""

    label: str
    time_ns: int
    fraction: float
    cpu_ns: int | None = None
    lines: tuple[PhaseLine, ...] = ()
    in_steps: bool = False


@dataclass(frozen=True, slots=True)
class RunCurve:
    """What was seen again and again during a run: pairs of nanoseconds since the start of the process and a value. That
    is bytes or, without ``is_bytes``, a share."""

    label: str
    points: tuple[tuple[int, float], ...]
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class StepsInRun:
    """So many steps of a run, between two times since the start of the process: how long most of them took, and the
    shortest and the longest of them. The typical one leaves out the longest, which may hold an evaluation."""

    from_ns: int
    until_ns: int
    steps: int
    typical_ns: int
    fastest_ns: int
    slowest_ns: int


@dataclass(frozen=True, slots=True)
class WholeRun:
    """What the run spent its time on, from the start of the process to the last look at it: the phases add up to
    ``time_ns``, of which ``own_ns`` are profkit's. ``is_over`` is False if the program was ended from outside, so the
    last seconds may be missing.
    ``band`` divides the run into equal parts of ``column_ns``: for each, the phase that took most of it, by its number
    in ``phases``. ``recorded_ns`` is when the recorded steps began and ended, counted as in ``curves``; None if no step
    was recorded or the clock does not tell. ``steps`` is how long steps took, in the order of time, as far as that is
    known."""

    time_ns: int
    phases: tuple[Phase, ...]
    own_ns: int = 0
    is_over: bool = True
    column_ns: int = 0
    band: tuple[int, ...] = ()
    recorded_ns: tuple[int, int] | None = None
    curves: tuple[RunCurve, ...] = ()
    steps: tuple[StepsInRun, ...] = ()

    @property
    def programs_ns(self) -> int:
        """The time of the run without profkit's own: what the shares of a saving of the run are of."""
        return max(self.time_ns - self.own_ns, 1)


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """One worker of a DataLoader, over its ``batches`` after the first, which took ``time_ns``.

    ``fetch`` (samples from the dataset), ``collate`` and ``waiting`` (for something to do) are shares of that time.
    ``cpu_ns_per_batch`` is the CPU time of the whole process. ``hand_over_ns_per_batch`` runs alongside: from a
    finished batch until it is pickled and the pipe has room for it. ``private_bytes`` is the memory that only this
    worker held at the end, ``private_growth_bytes`` how much more that is than after its first batch; None if
    unknown."""

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
    """The bytes of the peak that serve one purpose, and their share of the peak."""

    label: str
    bytes: int
    fraction: float


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """What one line allocated of the memory held at the peak, in ``count`` pieces. ``location`` is None if no line is
    known, as for what the backward pass allocates; ``why`` says why, if that is known. If the line calls an installed
    package, ``inside`` is the line there that allocated most, ``inside_bytes`` of it."""

    bytes: int
    fraction: float
    count: int
    location: Location | None = None
    why: str = ""
    inside: Location | None = None
    inside_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """The bytes held for one purpose at each moment of a `MemoryTimeline`."""

    label: str
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """What was held at some moments of the allocator's history. ``entries`` are the moments, as the number of entries
    before them; ``reserved_bytes`` and each of the ``parts`` have one value for each moment. ``parts`` are in stacking
    order, the lowest first."""

    entries: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    parts: tuple[MemorySeries, ...]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a memory snapshot says of one device.

    ``allocated_bytes``, ``reserved_bytes`` and ``inactive_split_bytes`` are those of `torch.cuda.memory_stats` at the
    time of the snapshot. ``cached_bytes`` are free in whole segments, ``split_bytes`` inside used ones.
    ``history_entries`` is the length of the allocator's history; at 0 the peak is what is held now. ``older_bytes``
    were already held when the history begins. ``peak_ns`` is the time of the peak since the history began,
    ``history_ns`` the length of the history; None if the allocator noted no times. ``lines`` are only those that hold
    most of the peak."""

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
    """The most memory in use on one device, or on the host: ``tensor_bytes`` by tensors, ``reserved_bytes`` by
    PyTorch's allocator with what it keeps for later tensors, ``seen_bytes`` by all processes (on the host by this one).
    0 means unknown."""

    where: str
    total_bytes: int
    tensor_bytes: int
    reserved_bytes: int
    seen_bytes: int


@dataclass(frozen=True, slots=True)
class OwnTime:
    """How much of a rank's mean step is own work of one ``cause`` (a key of `LATE_BECAUSE`), beside that of the median
    rank that was recorded in as much detail, and the line that takes most of it, None if unknown."""

    cause: str
    time_ns: int
    median_ns: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class RankWait:
    """The rank at the other end of a wait, and how long the wait takes in a mean step."""

    rank: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A collective that a rank calls in its steps: the ``number``-th of the step's ``alike`` calls with this group and
    operation.

    ``size_bytes`` is what the rank puts in (median, -1 if unknown). Times are means over the ``steps`` that have the
    call: ``waited_ns`` is how long the rank waits in it for others, ``caused_ns`` how long others wait in it for the
    rank, ``transfer_ns`` how long the transfer takes, and ``exposed_ns`` how much of that holds up the rank's work.
    ``last_rank`` is the rank that others waited for most often, in ``last_steps`` steps; -1 if nobody waited."""

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
    """One step of a rank: its length, split into own work, waits for others, and communication that no own work covers.
    ``caused_ns`` is how long others wait for the rank in it."""

    number: int
    time_ns: int
    own_ns: int
    waited_ns: int
    exposed_ns: int
    caused_ns: int


@dataclass(frozen=True, slots=True)
class RankDetails:
    """Where the time of one rank goes.

    ``step_ns`` is its mean step, None if its steps are not those of the others. It is the sum of ``own``, of the rank's
    ``waited_ns`` and ``exposed_ns``, and of ``uncompared_ns``: standing still for collectives that match none of
    another rank. ``waits_for`` are the ranks that it waits for longest, ``awaited_by`` those that wait longest for it.
    ``collectives`` is the number per step, ``compared`` the fraction of them that another rank's recording has too;
    ``calls`` are those with the longest waits. If there are many steps, each of ``steps`` is the longest of
    ``steps_per_column``. ``clock_behind_ns`` is how far its clock is behind that of the first rank, as the collectives
    show it; None if none does."""

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
    """One recorded rank of a launch.

    Others waited for it in ``late_steps`` of its ``steps``: ``kept_waiting`` of them, for ``late_ns`` (median).
    ``cause`` is a key of `LATE_BECAUSE`, ``location`` the line; empty and None if it was not late or nothing shows why.
    ``is_by_chance`` says that its own work is not longer than the others' by more than chance. The next three are means
    over the steps that it took part in: ``caused_ns`` is how long a step waits for it, ``waited_ns`` how long it waits
    for others, and ``exposed_ns`` how long its communication itself holds up its work. Ranks
    that are late together share the wait: each stretch counts in equal parts for those still missing. Waits between the
    stages of a pipeline count only in ``waited_ns``. ``host`` and ``device`` are empty and None if the recording
    does not name
    them. Of many ranks, only those with the longest waits, caused or suffered, have ``details``."""

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
"""What makes a rank late: the causes, and their words."""


@dataclass(frozen=True, slots=True)
class SizeCount:
    """How many collectives per step put in ``up_to_bytes`` or less (and more than the class below), and their bytes;
    both are means."""

    up_to_bytes: int
    count: float
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """What a process group moves per step. ``size`` is its number of ranks, ``recorded`` how many were recorded.
    ``bytes_per_step`` is what one rank puts in; ``time_ns_per_step`` is the time of the transfers, without waits for
    the last rank. Bytes divided by time is the "algorithm bandwidth" of NCCL's tests."""

    name: str
    size: int
    recorded: int
    collectives_per_step: float
    bytes_per_step: int
    time_ns_per_step: int
    sizes: tuple[SizeCount, ...] = ()


@dataclass(frozen=True, slots=True)
class StageSummary:
    """A stage of a pipeline in a mean step: how long it works, and how long it waits for micro-batches."""

    rank: int
    worked_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """Ranks that pass micro-batches on to each other. ``idle_fraction`` is the share of the step in which the mean
    stage has none to work on; ``even_fraction`` is what it would be with stages of equal work: (p - 1)/(m + p - 1) for
    p stages and m ``micro_batches``."""

    stages: tuple[StageSummary, ...]
    micro_batches: int
    idle_fraction: float
    even_fraction: float


@dataclass(frozen=True, slots=True)
class LaunchSummary:
    """Several ranks of one launch. ``world_size`` is the number of all its ranks, -1 if unknown. ``steps`` counts the
    steps that they have in common; ``step_time_ns`` is the median rank's. ``shown_rank`` is the rank whose own code the
    rest of the diagnosis judges. ``notes`` say what is missing, doubled or does not fit. In the ``pipelines``, a stage
    that waits for another's micro-batch makes no rank late."""

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
    """Whether there is something to change, nothing was found, or the recording is too thin to tell."""

    FOUND = "found"
    NOTHING_FOUND = "nothing-found"
    CANNOT_JUDGE = "cannot-judge"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The most important point of a diagnosis, in one line."""

    kind: VerdictKind
    text: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the judged steps do not stand for: the ``fraction`` of the time of all timed steps that longer ones take
    beyond a judged step. One ``every`` so many steps is long; 0 if they come at no equal distances. ``what`` the run
    mostly does outside its steps, and ``at`` which line; both are empty if not known. ``of_recording`` tells that no
    other step was timed: the fraction is that of the recording that measured steps of median length leave.
    ``of_run`` tells that the fraction is that of the run, which a loop with backward passes takes of which no step was
    recorded."""

    fraction: float
    every: int = 0
    what: str = ""
    at: str = ""
    of_recording: bool = False
    of_run: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What profkit concludes from one recording. Printed, or shown by a notebook, it is the report.

    ``findings`` are ranked by severity, then by what they give back. ``skipped`` names the rules that could not look,
    with the reason; a rule that is in neither looked and found nothing. ``health`` says what is wrong with the
    recording itself. ``total`` is what fixing all faults at once gives back, if more than one has a price: less than
    the sum, as fixes overlap.

    ``verdict`` is the first line of the report. ``cannot_judge`` says why the recording does not show where the step's
    time went, for example because the GPU's work is missing; "nothing found" then means nothing. ``hottest`` are the
    lines, then the operators that take most time, if nothing important was found. ``costliest`` are then the places
    that take most of the measured steps, with what each does and what could be gained there. ``kernels`` say what a
    device's step consists of, by what the kernels do; ``roofline`` how near they come to what the device could do;
    ``serving`` the steps of an engine.

    ``workers`` are the DataLoader workers that kept an account of themselves. ``memory`` is what a memory snapshot
    says, by device. ``failure`` says what ended the program, if that was a lack of memory; ``peaks`` how full memory
    was. ``pictures`` are what reports draw. ``ignored`` counts, by rule, the findings that comments on their lines
    leave out. ``launch`` is what several ranks did together, ``whole_run`` what the run as a whole spent its time
    on, None if it was not watched. ``elsewhere`` is given if most of the time lies in other steps than the judged
    ones. Old diagnoses have no ``verdict`` and no pictures."""

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
    costliest: tuple[CostlyPlace, ...] = ()
    kernels: tuple[KernelFamily, ...] = ()
    roofline: Roofline | None = None
    serving: tuple[EngineSteps, ...] = ()
    memory: tuple[DeviceMemory, ...] = ()
    failure: str | None = None
    peaks: tuple[MemoryPeak, ...] = ()
    pictures: Pictures | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)
    launch: LaunchSummary | None = None
    whole_run: WholeRun | None = None
    elsewhere: Elsewhere | None = None
    schema: str = SCHEMA

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst fault, None without a fault. Opportunities do not count."""
        faults = [f.severity for f in self.findings if f.kind is Kind.FAULT]
        return min(faults, key=lambda severity: severity.rank, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``diagnosis.json``: dicts, lists, strings, numbers, booleans and None.

        ``docs/schemas/diagnosis.schema.json`` describes it. Keys that end in ``_ns`` are whole nanoseconds, those in
        ``bytes`` bytes, and a ``fraction`` of 0.25 is a quarter of the step.
        """
        found: dict[str, Any] = json.loads(shown(self, "json"))
        return found

    def save(self, path: str | Path) -> None:
        """Write ``diagnosis.json`` to the file ``path``, replacing it if it exists; `profkit.load` reads it back.

        Raises `ProfkitError` if it cannot be written.
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


WORTH_EXPLAINING = 0.05
"""A place with less than a twentieth of the step may stay unexplained: whatever it does, little can be gained there."""


def unexplained(places: Iterable[CostlyPlace]) -> list[CostlyPlace]:
    """Those that nobody may call necessary, in the given order."""
    return [place for place in places if place.fraction >= WORTH_EXPLAINING and not place.is_explained]


LOW_FROM, MEDIUM_FROM, HIGH_FROM = 0.005, 0.03, 0.10
"""Shares of the step. Nobody touches a line for less than the first; nobody rewrites code or spends memory for less
than the second; the third shows without a measurement."""


def severity_of(
    saving: Saving | None, grows_without_bound: bool = False, full_after_ns: float | None = None
) -> Severity:
    """By the share of the step that becomes free; memory that grows without bound by the time until it is full, high if
    that is not known."""
    fraction = saving.fraction if saving else 0.0
    full_ns = (full_after_ns or 0.0) if grows_without_bound else float("inf")
    if fraction >= HIGH_FROM or full_ns <= _FULL_SOON:
        return Severity.HIGH
    if fraction >= MEDIUM_FROM or full_ns <= _FULL_LATER:
        return Severity.MEDIUM
    return Severity.LOW if fraction >= LOW_FROM or grows_without_bound else Severity.INFO


def is_worth_mending(finding: Finding) -> bool:
    """A fault that is more than information."""
    return finding.kind is Kind.FAULT and finding.severity is not Severity.INFO


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """The faults worth fixing, in the given order."""
    return [finding for finding in findings if is_worth_mending(finding)]


def opportunities(findings: Iterable[Finding]) -> list[Finding]:
    """The opportunities that are more than information, in the given order."""
    return [finding for finding in notable(findings) if finding.kind is Kind.OPPORTUNITY]


def notable(findings: Iterable[Finding]) -> list[Finding]:
    """The faults and opportunities that are more than information, in the given order."""
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def left_beyond(finding: Finding) -> float | None:
    """What is left of the saving once the findings above are fixed; None if hardly anything is lost."""
    saving = finding.saving
    if saving is None or saving.beyond is None or saving.fraction - saving.beyond < LOW_FROM:
        return None
    return saving.beyond


def full_after(finding: Finding) -> str:
    """``full after about 3 hours``, if memory grows and the time is known and not beyond a year; else empty."""
    ns = finding.evidence.get(FULL_AFTER_EVIDENCE, 0)
    return f"full after about {format_long_time(ns)}" if isinstance(ns, (int, float)) and 0 < ns <= _YEAR_NS else ""


def grows(finding: Finding) -> bool:
    """Whether ``saving.bytes`` is growth per step."""
    saving = finding.saving
    return saving is not None and saving.bytes > 0 and GROWTH_EVIDENCE in finding.evidence


def rank(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Worst first."""
    return tuple(findings[at] for at in rank_order(findings))


def rank_order(findings: Sequence[Finding]) -> list[int]:
    """The findings' indices, worst first: by severity, then growth of memory before time, as it ends the program, then
    by what they give back, whatever their kind. If a fault's gain lies within the likely range of an opportunity's,
    either may be larger, and the fault comes first: fixing it changes no result."""
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
    if fault.saving is None or above.saving is None or not fault.saving.time_ns:
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
