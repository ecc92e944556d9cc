"""The result of a comparison. ``before`` and ``after`` are its sides. Changes are relative: 0.05 is 5 % more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from profkit.core.printing import shown
from profkit.findings.values import Location, Severity

SCHEMA = "profkit.comparison/1"


class Verdict(str, Enum):
    """The verdict on the step time."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Side:
    """What was run on one side.

    ``paths`` are its recordings, ``calls`` the operators per recorded step, and ``step_ns`` the first steps of each
    recording behind the step time. Command, device and torch are those of the first recording.
    """

    paths: tuple[str, ...]
    command: tuple[str, ...] = ()
    device: str | None = None
    torch: str | None = None
    step_time_ns: int | None = None
    steps: int = 0
    calls: float = 0.0
    step_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the sides besides the program's work, which may explain a difference in time.

    One that ``blocks`` means that the steps are different things, so their times allow no conclusion.
    """

    what: str
    before: str
    after: str
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class StepTime:
    """How much longer a step got: ``change``, 0.05 for 5 %, with its 95 % interval from ``low`` to ``high``, None if
    there are too few steps for one.

    ``machine_change`` is how much the operators changed that are the same on both sides, if known. An interval within
    ``band`` either way is no difference. ``method`` says how the interval was made. ``is_counted`` means that the times
    left the verdict open, and the change is that of a step's calls.
    """

    verdict: Verdict
    before_ns: int
    after_ns: int
    change: float
    low: float | None
    high: float | None
    band: float
    steps: str
    method: str
    machine_change: float | None = None
    is_counted: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """An operator, a device kernel or a line: its time and calls per recorded step on both sides."""

    name: str
    before_ns: int
    after_ns: int
    before_calls: float
    after_calls: float
    location: Location | None = None

    @property
    def change_ns(self) -> int:
        """How much longer it takes per step; negative if it got shorter."""
        return self.after_ns - self.before_ns

    @property
    def calls_changed(self) -> bool:
        """Whether the calls per step changed."""
        return self.before_calls != self.after_calls


class Fate(str, Enum):
    """What became of a finding; `UNKNOWN` if the rule could not look on one side."""

    GONE = "gone"
    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FindingMove:
    """A finding on either side. Shares of the step and severities are None on a side without it."""

    fate: Fate
    rule: str
    location: Location | None
    before_severity: Severity | None
    after_severity: Severity | None
    before_fraction: float | None = None
    after_fraction: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MovedBranch:
    """A part of both sides' icicles, with its nanoseconds per recorded step on each. ``begin`` and ``width`` are shares
    of everything drawn."""

    depth: int
    name: str
    begin: float
    width: float
    before_ns: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class MovedTree:
    """Both sides' icicles as one, in the order of depth and place. ``levels`` names each depth, and ``of_device`` says
    that they are times on the device."""

    levels: tuple[str, ...]
    of_device: bool
    branches: tuple[MovedBranch, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two recordings, or sets of recordings, as ``profkit compare --format json`` prints it.

    ``step_time`` has the verdict and the change. ``differences`` are those besides the program's work. ``operators``
    and ``lines`` moved most, and ``findings`` says what became of each finding. ``tree`` has both sides' time by line,
    operator and kernel, None if they cannot be laid side by side. Printing it shows the report.
    """

    before: Side
    after: Side
    differences: tuple[Difference, ...]
    step_time: StepTime
    operators: tuple[Move, ...]
    lines: tuple[Move, ...]
    findings: tuple[FindingMove, ...]
    schema: str = SCHEMA
    tree: MovedTree | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the step time."""
        return self.step_time.verdict

    def is_regression(self, threshold: float) -> bool:
        """Whether the step is certainly longer, and by an estimated ``threshold`` (0.05 for 5 %) or more."""
        time = self.step_time
        return time.low is not None and time.low > 0 and time.change >= threshold

    def __str__(self) -> str:
        return shown(self, "text")
