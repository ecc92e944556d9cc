"""What profkit says about each recording of a corpus from an H100, and what was measured there.

A corpus contains ``truth.json``, ``programs/NAME.py``, and for each program the run directories ``NAME/pitfall`` and
``NAME/fix`` with plain traces of the same beside them, in ``runs`` or, in a small corpus, directly. Scripts and
scenarios without further measurements may lie in ``scripts`` and ``scenarios``.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Diagnosis, Finding, Location, Severity
from profkit.rules import all_rules

PROGRAMS, SCRIPTS, SCENARIOS = "programs", "scripts", "scenarios"
PITFALL, FIX = "pitfall", "fix"
RUN, PLAIN = "run", "plain"
_PLAIN_ENDING = ".plain.pt.trace.json.gz"
_GRAVE = (Severity.HIGH, Severity.MEDIUM)
_GPU_BOUND = 0.9
"""If the device is busy for this share of the measured step, the host makes the step at most a tenth longer."""


@dataclass(frozen=True, slots=True)
class Recording:
    """``form`` is ``run`` for a run directory of profkit, ``plain`` for a trace of torch.profiler alone."""

    section: str
    program: str
    variant: str
    form: str
    path: Path

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.program, self.variant, self.form) if part)


@dataclass(frozen=True, slots=True)
class Sought:
    """The finding that a pitfall should give. ``exists``: profkit has the rule. ``rank``: among all findings. ``line``:
    whether its ``place`` is the marked line. In a trace without lines the place is a function: ``line`` is None, and
    ``function`` is whether it contains the marked line or is called there. ``besides``: the marked line is among the
    further places of the finding. ``predicted``, ``low``, ``high``: its share of the step. ``measured``: what the fix
    saved."""

    rule: str
    exists: bool
    measured: float | None
    found: bool = False
    rank: int | None = None
    place: str | None = None
    line: bool | None = None
    function: bool | None = None
    besides: bool = False
    predicted: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float | None:
        """How far the prediction is off, as a share of the step."""
        if self.predicted is None or self.measured is None:
            return None
        return abs(self.predicted - self.measured)

    @property
    def is_covered(self) -> bool:
        """Whether the stated interval contains the measured saving."""
        known = self.low is not None and self.high is not None and self.measured is not None
        return known and self.low <= self.measured <= self.high  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Row:
    """One recording. ``error`` says why there is no diagnosis. ``step_ms`` is the stated step time, without the cost of
    recording if that is known, ``least_ms`` and ``most_ms`` its bounds, ``busy_ms`` how long the device worked on a
    step, as recorded. ``clean``: nothing is wrong with the program. ``grave``: its findings of medium and high
    severity. ``measured_ms`` is the median of seven blocks of steps, ``blocks_ms`` their least and most."""

    recording: Recording
    measured_ms: float | None
    clean: bool
    error: str | None = None
    step_ms: float | None = None
    bound_by: str | None = None
    busy_ms: float | None = None
    sought: Sought | None = None
    grave: tuple[str, ...] = ()
    least_ms: float | None = None
    most_ms: float | None = None
    blocks_ms: tuple[float, float] | None = None

    @property
    def ratio(self) -> float | None:
        """The stated step time over the measured one."""
        return self.step_ms / self.measured_ms if self.step_ms is not None and self.measured_ms else None

    @property
    def is_gpu_bound(self) -> bool:
        return bool(self.busy_ms and self.measured_ms and self.busy_ms >= _GPU_BOUND * self.measured_ms)


def survey(root: Path) -> list[Row]:
    """A row for each recording, in the order of section, program, variant and form."""
    truth = json.loads((root / "truth.json").read_text(encoding="utf-8"))
    return [_judge(root, recording, truth.get(recording.program, {})) for recording in find_recordings(root, truth)]


def find_recordings(root: Path, truth: Mapping[str, Any]) -> list[Recording]:
    """All recordings of a corpus."""
    sections = (_of_programs(root, truth), _of_scripts(root / SCRIPTS), _of_scenarios(root / SCENARIOS))
    return [one for section in sections for one in section if one.path.exists()]


def _of_programs(root: Path, truth: Mapping[str, Any]) -> Iterator[Recording]:
    runs = root / "runs" if (root / "runs").is_dir() else root
    for program in sorted(truth):
        for variant in (PITFALL, FIX):
            yield Recording(PROGRAMS, program, variant, RUN, runs / program / variant)
            yield Recording(PROGRAMS, program, variant, PLAIN, runs / program / (variant + _PLAIN_ENDING))


def _of_scripts(directory: Path) -> Iterator[Recording]:
    for path in sorted(directory.glob("*/run.json")):
        yield Recording(SCRIPTS, path.parent.name, "", RUN, path.parent)


def _of_scenarios(directory: Path) -> Iterator[Recording]:
    for scenario in sorted(directory.glob("*/")):
        for variant in (PITFALL, FIX):
            yield Recording(SCENARIOS, scenario.name, variant, RUN, scenario / variant)


def _judge(root: Path, recording: Recording, truth: Mapping[str, Any]) -> Row:
    measured_ms, clean = truth.get("ms", {}).get(recording.variant), _is_clean(recording, truth)
    expected = truth.get("rule") if recording.variant == PITFALL else None
    nothing = None if expected is None else Sought(expected, expected in all_rules(), truth["measured_fraction"])
    try:
        facts = read_facts(recording.path)
        diagnosis, busy_ms = diagnose(facts), _busy_ns(facts) / 1e6
    except Exception as error:
        message = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Row(recording, measured_ms, clean, message, sought=nothing)
    timing = diagnosis.timing
    step_ns = timing.unprofiled_step_time_ns or timing.step_time_ns
    return Row(
        recording,
        measured_ms,
        clean,
        step_ms=None if step_ns is None else step_ns / 1e6,
        bound_by=timing.bound_by,
        busy_ms=busy_ms,
        sought=None if expected is None else _seek(expected, diagnosis, root / "programs", recording.program, truth),
        grave=tuple(one.rule for one in diagnosis.findings if one.severity in _GRAVE),
        least_ms=None if timing.unprofiled_least_time_ns is None else timing.unprofiled_least_time_ns / 1e6,
        most_ms=None if timing.unprofiled_most_time_ns is None else timing.unprofiled_most_time_ns / 1e6,
        blocks_ms=tuple(truth["spread_ms"][recording.variant]) if measured_ms and "spread_ms" in truth else None,
    )


def _is_clean(recording: Recording, truth: Mapping[str, Any]) -> bool:
    if recording.section == PROGRAMS:
        return truth["rule"] is None
    return "clean" in recording.program


def _busy_ns(facts: Facts) -> float:
    """How long the device worked on what a measured step launched, as recorded."""
    launches, events = facts.launches, facts.trace.events
    work = launches.work[facts.steps.in_measured(launches.launched_ns)]
    busy = union(events.start_ns[work], events.ends_of(work))
    return float(busy.total_ns / np.maximum(facts.steps.measured_count, 1))


def _seek(rule: str, diagnosis: Diagnosis, programs: Path, program: str, truth: Mapping[str, Any]) -> Sought:
    measured = truth["measured_fraction"]
    at = next((at for at, one in enumerate(diagnosis.findings) if one.rule == rule), None)
    if at is None:
        return Sought(rule, rule in all_rules(), measured)
    finding: Finding = diagnosis.findings[at]
    lines = [line for name, line in truth["lines"] if name == rule]
    saving, path = finding.saving, programs / f"{program}.py"
    by_line = finding.location is None or finding.location.precision == "call"
    right = is_at(finding.location, path, lines)
    return Sought(
        rule,
        exists=True,
        measured=measured,
        found=True,
        rank=at + 1,
        place=finding.location.short if finding.location else None,
        line=right if by_line else None,
        function=None if by_line else right,
        besides=not right and any(is_at(place, path, lines) for place in finding.also),
        predicted=saving.fraction if saving else None,
        low=saving.low if saving else None,
        high=saving.high if saving else None,
    )


def is_at(location: Location | None, program: Path, lines: list[int]) -> bool:
    """Whether a place is a marked line or, if it is only a function, contains one or is called by one."""
    if location is None or Path(location.file).name != program.name:
        return False
    if location.precision == "call":
        return location.line in lines
    tree = ast.parse(program.read_text(encoding="utf-8"))
    names = {name for line in lines for name in (*_functions_around(tree, line), *_functions_called(tree, line))}
    return location.function.rpartition(".")[2] in names


def _functions_called(tree: ast.Module, line: int) -> list[str]:
    """The functions of the program that a line calls by name."""
    known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == line]
    return [one.id for one in calls if isinstance(one, ast.Name) and one.id in known]


def _functions_around(tree: ast.Module, line: int) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return [node.name if isinstance(node, ast.FunctionDef) else "<lambda>" for node in around]
