"""What a comparison concludes. ``before`` and ``after`` are the two sides; changes are relative: 0.05 is 5 % more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from profkit.findings import Location, Severity
from profkit.printing import shown

SCHEMA = "profkit.comparison/1"


class Verdict(str, Enum):
    """What can be said about the step time."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Side:
    """What was run on one side. ``paths`` are its recordings, and ``calls`` the operators per recorded step, which are
    counted and free of noise; the rest is that of the first recording. ``step_ns`` are the steps behind the step time,
    the first of each recording."""

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

    ``blocks``: their steps are different things, so that their times allow no conclusion.
    """

    what: str
    before: str
    after: str
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class StepTime:
    """How much longer a step got: ``change``, 0.05 for 5 %, with its 95 % interval from ``low`` to ``high``, None if
    the steps are too few for one.

    ``machine_change`` is by how much the operators that are the same on both sides changed, if known. An interval
    within ``band`` either way is no difference. ``method`` says how the interval was made. With ``is_counted``, the
    times left the verdict open, and the change is that of the calls that a step makes.
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
        """By how much longer it takes in a step; negative where it got shorter."""
        return self.after_ns - self.before_ns

    @property
    def calls_changed(self) -> bool:
        """Whether a step calls it more or less often."""
        return self.before_calls != self.after_calls


class Fate(str, Enum):
    """What became of a finding; `UNKNOWN` where the rule could not look on one side."""

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
class Comparison:
    """What is different between two recordings, or sets of them, as ``profkit compare --format json`` prints it.

    ``step_time`` has the verdict and by how much. ``differences`` are those between the sides that are not the
    program's work. ``operators`` and ``lines`` are what moved most, ``findings`` what became of each. Printed, it is
    the report."""

    before: Side
    after: Side
    differences: tuple[Difference, ...]
    step_time: StepTime
    operators: tuple[Move, ...]
    lines: tuple[Move, ...]
    findings: tuple[FindingMove, ...]
    schema: str = SCHEMA

    @property
    def verdict(self) -> Verdict:
        """What can be said about the step time."""
        return self.step_time.verdict

    def is_regression(self, threshold: float) -> bool:
        """Whether the step is certainly longer, and by an estimated ``threshold`` (0.05 for 5 %) or more."""
        time = self.step_time
        return time.low is not None and time.low > 0 and time.change >= threshold

    def __str__(self) -> str:
        return shown(self, "text")
