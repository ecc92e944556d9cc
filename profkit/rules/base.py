"""What a rule is: a small pure judgement over the derived facts, and the page that explains it.

A rule is one file. Its docstring is its page, with the headings `HEADINGS` in that order. Its function has the file's
name, is decorated with `rule`, and yields a `Suspicion` for each place where the evidence holds. A rule reads no file,
does not import torch, and does not price itself: it hands over an `Edit` of the recording, which the replay prices.

This file is also a door: it offers the words in which rules speak, such as kinds, severities and amounts. ``trace``
offers the columns, ``patterns`` lines and frequencies, ``savings`` the edits. An author has four places to look. What
few rules need is imported from where it is defined.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np
from msgspec import Struct, field

from profkit.core.units import format_bytes, format_count, format_share, format_time, pick_form
from profkit.derive.device.kernel_families import Family
from profkit.derive.facts import Facts, derived_once
from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.steps.boundaries import ONGOING_LOOP
from profkit.findings.values import HIGH_FROM, LOW_FROM, MEDIUM_FROM, Kind, Location, Severity
from profkit.patterns.named_lines import Places
from profkit.patterns.retention.holding import MIN_SAMPLES
from profkit.patterns.whole_run.marking import When
from profkit.run.directory import CallSite, MatrixForm, Recomputation, Watch, why_unwatched
from profkit.savings.cost_models.devices import ASK_FOR_CARD, PRESUMED, presumed_rates, why_no_rates
from profkit.savings.edits import Edit
from profkit.savings.launch.launch_savings import predict_launch_saving
from profkit.savings.launch.pipelines import may_hide_pipelines
from profkit.savings.replay import replay
from profkit.savings.roofline.below import points_below
from profkit.savings.roofline.launches import Roofline, roofline_of
from profkit.savings.trial import Trial
from profkit.source.changes import Rewrite
from profkit.trace.events import Rows

__all__ = [
    "CALLS_NOT_WATCHED",
    "HEADINGS",
    "HIGH_FROM",
    "LOW_FROM",
    "MEDIUM_FROM",
    "CallSite",
    "CannotLook",
    "Check",
    "Facts",
    "Kind",
    "Location",
    "Need",
    "Rule",
    "Severity",
    "Suspicion",
    "Suspicions",
    "Watch",
    "When",
    "derived_once",
    "format_bytes",
    "format_count",
    "format_share",
    "format_time",
    "known_matrix_forms",
    "known_recomputation",
    "known_roofline",
    "missing_needs",
    "nothing_below",
    "pick_form",
    "reason_for",
    "rule",
    "why_not_watched",
]

HEADINGS = ("What it detects", "Why is this bad?", "Example", "Use instead", "How the saving is estimated")


class CannotLook(Exception):
    """Raised by a rule that cannot judge this recording. The report shows the message as the reason."""


class Need(Enum):
    """What a rule needs from a recording. The value is the reason given where it is missing."""

    DEVICE = "the recording holds no work of a GPU"
    SHAPES = "the recording holds no tensor shapes (record_shapes=True)"
    MEMORY = "the recording holds no memory events (profile_memory=True)"
    LIVE = "what the program's names keep alive was not recorded (run the program under profkit)"
    GROWTH = "fewer than four steps were sampled, too few to tell growth from fluctuation"
    OPERATORS = "the recording holds no operators of the host"
    COMPUTE = "what the operators compute was not recorded"
    """Met on a CPU and on an accelerator whose work was recorded. Elsewhere an operator only shows its launch time."""
    LINES = "how often each line runs was not recorded (run the program under profkit)"
    WHOLE_STEP = "the only recorded step was cut off: what comes later in it, and its share of a step, are not known"
    """For things that happen once per step, and for those that a later operator of the step may explain."""
    ROUNDS = "the only recorded step was cut off, and shows no rounds of a loop"
    """For things that are the same in any part of a step: in a whole step, or in rounds of a loop in it."""
    SNAPSHOT = "no memory snapshot was recorded"
    TRACE = "a memory snapshot holds no operators, no steps and no times"
    """Every rule that does not ask for a snapshot has this need."""
    WHOLE_RUN = "what the whole run spent its time on was not watched (run the program under profkit)"
    STEP_TIMES = "how long the run's steps took is not known"
    """Met by a recording, which may tell too little of them, and by a run that was only watched."""
    RANKS = "one rank's recording: only several show who waits for whom"
    MESSAGES = "the recordings do not say to whom messages go, so a pipeline would not be recognised"


class Suspicion(Struct, frozen=True):
    """One place where a rule's evidence holds.

    ``rows`` are the events that show it. The location is their calling line unless ``places`` names one, and ``count``
    defaults to their number per step. The place is reported only if its edit saves the share ``worth`` of the step.
    ``size_bytes`` is the memory that the fix frees, ``peak_fraction`` its share of the peak; ``grows`` says that memory
    grows by ``size_bytes`` each step, without bound. ``trial`` is what ``profkit diagnose --measure`` runs to price the
    fix again. If several places share one cause and fixing only one saves little, ``joint`` is the edit for all of
    them and ``part`` is this place's share of that saving. A ``launch_edit`` is priced by what all ranks gain together.
    """

    message: str
    fix: str
    rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    edit: Edit | None = None
    worth: float = 0.0
    launch_edit: JointEdit | None = None
    joint: Edit | None = None
    part: float = 1.0
    confidence: float = 0.9
    count: int | None = None
    places: Places = Places()
    size_bytes: int = 0
    peak_fraction: float = 0.0
    grows: bool = False
    is_bounded: bool = False
    """What grows ends growing some time, so that memory may never be full."""
    host_bytes: int = 0
    """Of growing ``size_bytes``, what is on the host, wherever tensors are: autograd nodes, other processes."""
    severity: Severity | None = None
    """Set by the rule where nothing can be priced."""
    kind: Kind | None = None
    """Overrides the rule's kind where fixing this one case would change numerics or structure."""
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    trial: Trial | None = None
    run_ns: int = 0
    """The time that the whole run would be shorter, for what lies outside its steps and so is in no replay."""
    run_uncertainty: float = 0.0
    """The share of ``run_ns`` by which it may be wrong."""
    run_when: When = When.ANY
    """In which part of the run its line costs that time: there the page marks it."""
    spent_ns: int = 0
    """The time per step that the message names. Where the saving is longer, the report adds the reason."""
    rewrite: Rewrite | None = None
    """The fix as a change of the finding's line, shown where the line's text proves it."""
    unpriced: str = ""
    """Why only ``trial`` can price this. Without that measurement the rule counts as unable to look."""

    @property
    def location(self) -> Location | None:
        """The first line of ``places``."""
        return self.places.location

    @property
    def also(self) -> tuple[Location, ...]:
        """The other lines of ``places``."""
        return self.places.also


Suspicions = Iterator[Suspicion]
"""What a judgement yields."""
Check = Callable[[Facts], Suspicions]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its public name, the kind of its findings, its needs, its judgement and its page. ``by_snapshot`` judges
    a memory snapshot where the recording lacks a need or shows nothing."""

    name: str
    kind: Kind
    needs: tuple[Need, ...]
    check: Check
    page: str
    by_snapshot: Check | None = None

    @property
    def summary(self) -> str:
        """The first line of the page."""
        return self.page.splitlines()[0]

    @property
    def model(self) -> list[str]:
        """The lines of the page that say how the saving is estimated."""
        lines = self.page.splitlines()
        return lines[lines.index(HEADINGS[-1]) + 1 :] if HEADINGS[-1] in lines else []


def rule(kind: Kind, *needs: Need, by_snapshot: Check | None = None) -> Callable[[Check], Rule]:
    """Make a `Rule` from a judgement. The docstring of its file is the page."""

    def make(check: Check) -> Rule:
        page = inspect.getdoc(sys.modules[check.__module__]) or ""
        return Rule(check.__name__.replace("_", "-"), kind, needs, partial(_worthwhile, check), page, by_snapshot)

    return make


def _worthwhile(check: Check, facts: Facts) -> Suspicions:
    for found in check(facts):
        if not found.worth or _share_saved(facts, found) >= found.worth:
            yield found


def _share_saved(facts: Facts, found: Suspicion) -> float:
    if found.launch_edit is not None:
        return predict_launch_saving(facts, found.launch_edit).fraction
    return replay(facts, found.edit).fraction if found.edit is not None else 0.0


_ONLY_BEGUN = "only the program's beginning was recorded: what a step does, and its share of a step, are not known"
_ONLY_WATCHED = "the run was only watched, its steps were not recorded (profkit diagnose does)"
_NO_STEPS = "no step of the program was recorded, and growth is seen from step to step (call step() after each)"
_OUTDONE = "the optimizer stepped for the first time after the recording: what grows from call to call may end there"
_STOPPED = "the program was ended before its optimizer stepped: what grows from call to call may end there"
_NO_STEP_ENDED = "no step of the program was recorded in which it could be watched (call step() after each)"
_NEVER_IN_OTHER_KINDS = {
    Need.SHAPES: "tensor shapes and types",
    Need.MEMORY: "memory events of PyTorch's allocator",
    Need.OPERATORS: "operators of the host, unless the program ran under torch.autograd.profiler.emit_nvtx()",
}
"""Only PyTorch's profiler records these. Naming its flags would not help users of another profiler."""


def reason_for(facts: Facts, need: Need) -> str:
    """Why a rule with this need cannot look."""
    reason: str = need.value
    if need is Need.TRACE:
        return reason if facts.snapshot is not None else _ONLY_WATCHED
    if need in (Need.WHOLE_STEP, Need.ROUNDS) and facts.is_beginning:
        return _ONLY_BEGUN
    if facts.trace.recording.kind and need in _NEVER_IN_OTHER_KINDS:
        return f"{facts.trace.recording.kind} holds no {_NEVER_IN_OTHER_KINDS[need]}"
    if need is Need.COMPUTE and facts.accelerator is not None:
        return f"the program used {facts.accelerator.label} whose work was not recorded"
    if need is Need.LIVE and facts.run.torch is not None:
        return (_STOPPED if facts.run.was_stopped else _OUTDONE) if facts.run.was_outdone else _NO_STEPS
    return reason


_UNSEEN = {
    Watch.CALLS: "the steps that were watched gave PyTorch's functions nothing that could be followed",
    Watch.FUNCTIONS: "the steps that were watched called no function whose arguments could be followed",
    Watch.GRADIENTS: "no gradient of an optimizer's or a module's parameter was seen in the steps that were watched",
    Watch.PADDING: "no batch was seen for padding: none came from a DataLoader or entered a module",
}
"""What a program that ran under profkit did not have."""
CALLS_NOT_WATCHED = "what PyTorch's functions are given was not recorded (run a program with steps under profkit)"


def why_not_watched(facts: Facts, watch: Watch, otherwise: str) -> str:
    """Why a rule cannot look if the watch saw nothing: what stopped it, or that no step ended in which it could see
    something. Else, where the program ran under profkit, what was not seen in its steps; or ``otherwise``, which
    advises to do that."""
    run = facts.run
    if ended := why_unwatched(run, watch):
        return ended
    if run.is_part:
        return Need.WHOLE_STEP.value
    if run.torch is None:
        return otherwise
    return _UNSEEN[watch] if run.step_signal is not None else _NO_STEP_ENDED


def known_recomputation(facts: Facts) -> Recomputation:
    """What the watch of calls found in the located step. Raises `CannotLook` if it saw none."""
    known = facts.run.recomputation
    if known is None:
        raise CannotLook(why_not_watched(facts, Watch.CALLS, CALLS_NOT_WATCHED))
    return known


def known_matrix_forms(facts: Facts) -> tuple[MatrixForm, ...]:
    """The located step's calls on matrices whose form was looked at. Raises `CannotLook` if none was."""
    forms = known_recomputation(facts).forms
    if forms is None:
        raise CannotLook("matrices were not looked at: they lie on a device, or the step has too many calls to see all")
    return forms


def known_roofline(facts: Facts) -> Roofline:
    """The measured steps on the roofline. Raises `CannotLook` if that of the device is not known."""
    roofline = roofline_of(facts)
    if roofline is None and presumed_rates(facts) is not None:
        raise CannotLook("the recording holds no step with calls whose operations or bytes are known")
    if roofline is None:
        raise CannotLook(f"the peak rates of this device are not known: {why_no_rates(facts)}")
    return roofline


def nothing_below(roofline: Roofline, *families: Family) -> None:
    """What a rule returns that found no slow launch of these families. Raises `CannotLook` if there are such launches
    and only their kernels tell the device: a faster one, of which they reach less, has the same kernels."""
    if roofline.rates.device.startswith(PRESUMED) and points_below(roofline, families, lambda _: True):
        card = roofline.rates.device.removeprefix(PRESUMED)
        raise CannotLook(
            f"the recording does not name its device, and on an {card} these are not slow ({ASK_FOR_CARD})"
        )


def missing_needs(facts: Facts, needs: tuple[Need, ...]) -> list[Need]:
    """The needs that the recording does not meet."""
    if not facts.has_trace and (facts.snapshot is not None or facts.account.stacks):
        alone = (
            (Need.SNAPSHOT, facts.snapshot is not None),
            (Need.WHOLE_RUN, bool(facts.account.stacks)),
            (Need.STEP_TIMES, bool(facts.account.steps)),
        )
        return [] if any(need in needs and is_there for need, is_there in alone) else [Need.TRACE]
    met: dict[Need, Callable[[], bool]] = {
        Need.SNAPSHOT: lambda: facts.snapshot is not None,
        Need.DEVICE: lambda: facts.device.present,
        Need.SHAPES: lambda: facts.operators.has_shapes,
        Need.MEMORY: lambda: facts.memory.present,
        Need.LIVE: lambda: len(facts.live) > 0 and not facts.run.was_outdone,
        Need.GROWTH: lambda: not 0 < len(facts.live) < MIN_SAMPLES,
        Need.OPERATORS: lambda: len(facts.operators.rows) > 0,
        Need.COMPUTE: lambda: facts.accelerator is None or facts.accelerator.is_recorded,
        Need.LINES: lambda: bool(facts.steps.located.any()),
        Need.WHOLE_STEP: lambda: not facts.is_part,
        Need.ROUNDS: lambda: not facts.is_part or facts.steps.source == ONGOING_LOOP,
        Need.WHOLE_RUN: lambda: bool(facts.account.stacks),
        Need.STEP_TIMES: lambda: True,
        Need.RANKS: lambda: facts.launch is not None,
        Need.MESSAGES: lambda: not may_hide_pipelines(facts),
    }
    return [need for need in needs if not met[need]()]
