"""Proof of a prediction: both variants of a scenario are measured, and compared with what profkit predicted.

Each variant runs in a process of its own, unrecorded and with one thread. They take turns of a few steps, so whatever
else the machine does affects both. The measured effect is the median over rounds of ``1 - fix / pitfall``, of the
step's time or of its peak memory: the two turns of a round are so close that a change in the machine's speed changes
both alike. The interval is the percentile bootstrap over rounds (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13): over rounds, not steps, because what disturbs one step often disturbs the next.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Protocol

import numpy as np

from profkit.core.errors import ProfkitError
from profkit.diagnosis import experiments
from profkit.diagnosis.catalogue import ANOTHER_RESULT, NOTHING, Scenario
from profkit.diagnosis.pipeline import diagnose_path
from profkit.findings.values import GROWTH_EVIDENCE, Diagnosis, Finding, Saving, Severity, faults, no_gain_note
from profkit.trace.events import Int64s

_ROUNDS = 12
"""A bootstrap over fewer rounds says little about the spread."""
_BLOCK_S = 0.15
"""The length of a turn, at least one step: long enough that switching processes weighs little."""
_LARGEST_BLOCK = 50
_MEMORY_STEPS = 12
_BUDGET_S = 8.0
_NARROW = 0.01
"""An interval as narrow as this ends the measuring: half a point to either side is less than any prediction claims."""
_FIRST_ON_DEVICE = 3
"""Steps before the length of a turn is chosen. The first step on a GPU loads libraries for seconds, which would make
each turn one step, and then each step would wait for the device."""
_WARM_UP = 2
"""Rounds that do not count: lazy initialisation, cold caches, first touch of memory."""
_FEWEST = 4
"""Rounds that count, however long they take: of fewer, the median is that of the luckiest."""
_RESAMPLES = 2000
_CONFIDENCE = (2.5, 97.5)
_TIMEOUT_S = 300
_THREADS = "1"
"""The idle threads of one process must not take the other's CPUs. Recordings are made alike."""
_MEMORY_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""With these glibc gives freed tensors back at once, so that the process holds what the program holds
(``mallopt(3)``)."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the pitfall's step time or peak memory, with a range."""

    fraction: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Proof:
    """What one scenario showed. ``measured`` is None if it was not run, ``predicted`` if no rule gave a price."""

    name: str
    kind: str
    verdict: str
    measured: Share | None = None
    predicted: Share | None = None
    fired: bool = False
    exact_line: bool = False
    silent_on_fix: bool = False

    @property
    def holds(self) -> bool:
        return self.verdict == HOLDS

    @property
    def was_run(self) -> bool:
        return not self.verdict.startswith(_NOT_RUN)


@dataclass(frozen=True, slots=True)
class Turns:
    """How long variants take turns: for at least so many rounds, and then until the effect is known well or
    ``budget_s`` is spent. After ``most_s`` a handful is enough."""

    rounds: int
    budget_s: float
    most_s: float = inf


class Process(Protocol):
    """A process that answers, as `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[str] | None: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    def kill(self) -> None: ...
    def communicate(self) -> tuple[str, str]: ...


Start = Callable[[str, Sequence[str], Mapping[str, str]], Process]
"""Begins a process that runs a module with these arguments in this environment, in a session and with pipes of its
own."""
_Answer = dict[str, list[int]]
SILENCE = "silence"
"""The kind of proof that no fault is reported where nothing is wrong; nothing is measured."""
HOLDS = "holds"
INCONCLUSIVE = "inconclusive: the difference lies inside the noise"
NOT_HERE = "not run: it needs a GPU"
_NOT_RUN = "not run: "


@dataclass(frozen=True, slots=True)
class Measurement:
    """Medians by round (rows) and variant (pitfall, fix): time, peak memory, and the number of steps so far."""

    ns: Int64s
    peak_bytes: Int64s
    number: Int64s

    def values(self, kind: str) -> Int64s:
        """What is compared."""
        return self.ns if kind == "time" else self.peak_bytes


def environment_of(kind: str) -> dict[str, str]:
    """What processes that are recorded (``time``) or measured run in."""
    settings = _MEMORY_SETTINGS if kind == "memory" else {}
    return {**os.environ, "OMP_NUM_THREADS": _THREADS, "MKL_NUM_THREADS": _THREADS, **settings}


def verify(scenario: Scenario, device: str = "cpu") -> Proof:
    """Record and diagnose both variants, measure both, and compare. If a scenario fails, the verdict says so."""
    kind = kind_of(scenario)
    if device == "cpu" and only_shows_on_gpu(scenario):
        return Proof(scenario.name, kind, NOT_HERE)
    try:
        pitfall = diagnose_variant(scenario, "pitfall", device)
        if reason := cannot_gain_here(scenario, pitfall):
            return Proof(scenario.name, kind, reason)
        if kind == SILENCE:
            return prove(scenario, pitfall, diagnose_variant(scenario, "fix", device), None)
        with running(scenario, device, kind) as variants:  # they import PyTorch while the fix is still being recorded
            fix = diagnose_variant(scenario, "fix", device)
            return prove(scenario, pitfall, fix, measure_variants(variants, kind))
    except ProfkitError as error:
        return Proof(scenario.name, kind, f"failed: {error}")


def kind_of(scenario: Scenario) -> str:
    """What is compared: ``time``, ``memory``, or that profkit stays silent (`SILENCE`)."""
    if scenario.effect in (NOTHING, ANOTHER_RESULT):
        return SILENCE
    return "memory" if scenario.effect == "memory" else "time"


def only_shows_on_gpu(scenario: Scenario) -> bool:
    """Whether a CPU cannot run it, or does not show its effect."""
    return scenario.needs_gpu or scenario.effect == "time on a GPU"


def cannot_gain_here(scenario: Scenario, pitfall: Diagnosis) -> str | None:
    """Why this machine lacks what the fix needs, or gains nothing by it; only an experiment can tell."""
    if not scenario.needs_measuring or any(finding.rule in scenario.triggers for finding in pitfall.findings):
        return None
    reasons = [pitfall.skipped[rule] for rule in scenario.triggers if rule in pitfall.skipped]
    reasons += [note for note in pitfall.health if note.startswith(tuple(map(no_gain_note, scenario.triggers)))]
    return f"{_NOT_RUN}{reasons[0]}" if reasons else None


def prove(scenario: Scenario, pitfall: Diagnosis, fix: Diagnosis, measurement: Measurement | None) -> Proof:
    """Compare what both diagnoses say with what was measured, which is None if there is nothing to measure."""
    if not scenario.triggers:
        return _prove_silence(scenario, (pitfall, fix), measurement)
    assert measurement is not None  # a scenario with rules to trigger has an effect
    kind, found = kind_of(scenario), [finding for finding in pitfall.findings if finding.rule in scenario.triggers]
    measured = effect_of(measurement.values(kind))
    fired, exact_line = bool(found), any(is_expected(finding, scenario) for finding in found)
    silent = not any(finding.rule in scenario.triggers for finding in fix.findings)
    return Proof(
        name=scenario.name,
        kind=kind,
        measured=measured,
        predicted=_predicted(pitfall, found, kind, measurement),
        fired=fired,
        exact_line=exact_line,
        silent_on_fix=silent,
        verdict=_judge(measured, fired, exact_line, silent),
    )


def _prove_silence(scenario: Scenario, diagnoses: tuple[Diagnosis, ...], measurement: Measurement | None) -> Proof:
    """No rule reports a fault above low severity in either variant, and the effect is real if there should be one."""
    found = [
        finding
        for diagnosis in diagnoses
        for finding in faults(diagnosis.findings)
        if finding.severity is not Severity.LOW
    ]
    kind = kind_of(scenario)
    measured = effect_of(measurement.values(kind)) if measurement is not None else None
    verdict = _judge_effect(measured) if measured else HOLDS
    verdict = f"{found[0].rule} is reported where nothing is wrong" if found else verdict
    return Proof(scenario.name, kind, verdict, measured, fired=bool(found), silent_on_fix=not found)


def diagnose_variant(scenario: Scenario, variant: str, device: str) -> Diagnosis:
    """Record one variant in a process of its own and diagnose the recording."""
    with TemporaryDirectory(prefix="profkit-") as directory:
        run = Path(directory) / "run"
        child = "profkit.collect.launch.scenario"
        command = [sys.executable, "-m", child, str(scenario.path), variant, device, str(run)]
        result = subprocess.run(  # noqa: S603  # profkit itself
            command, env=environment_of("time"), capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        if result.returncode:
            raise ProfkitError(f"{scenario.name}: the {variant} could not be recorded: {_last_line(result.stderr)}")
        return diagnose_path(run, experiments.measure if scenario.needs_measuring else None)


def is_expected(finding: Finding, scenario: Scenario) -> bool:
    """Whether a finding is on a line that the scenario marks for its rule."""
    location = finding.location
    return location is not None and (location.line, finding.rule) in scenario.expected["pitfall"]


def measure(scenario: Scenario, device: str, kind: str) -> Measurement:
    """Run both variants by turns, in processes of their own."""
    with running(scenario, device, kind) as variants:
        return measure_variants(variants, kind)


def start_process(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
    """A new Python process."""
    return subprocess.Popen(  # noqa: S603  # profkit itself
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environment),
        start_new_session=True,
    )


@contextmanager
def running(scenario: Scenario, device: str, kind: str, start: Start = start_process) -> Iterator[list[Variant]]:
    """The processes of the pitfall and of the fix."""
    environment = environment_of(kind)
    with ExitStack() as stack:
        yield [
            stack.enter_context(Variant(scenario, variant, device, environment, start))
            for variant in ("pitfall", "fix")
        ]


def measure_variants(
    variants: list[Variant], kind: str, clock: Callable[[], float] = time.monotonic, turns: Turns | None = None
) -> Measurement:
    """Let both take turns until there are enough rounds and the effect is known well, or the time is up."""
    rounds = _by_turns(variants, clock, turns) if kind == "time" else _step_by_step(variants)
    return Measurement(*(_medians(rounds, name) for name in ("ns", "peak_bytes", "number")))


def _by_turns(variants: list[Variant], clock: Callable[[], float], turns: Turns | None = None) -> list[list[_Answer]]:
    turns = turns or Turns(_ROUNDS, _BUDGET_S)
    slowest_s = max(min(sum(variant.run(1)["ns"]) for _ in range(variant.first)) for variant in variants) / 1e9
    block = max(1, min(_LARGEST_BLOCK, int(_BLOCK_S / max(slowest_s, 1e-4))))
    rounds: list[list[_Answer]] = []
    begun = clock()
    while not _is_enough(rounds[_WARM_UP:], turns, begun, clock):
        rounds.append([variant.run(block) for variant in variants])
    return rounds[_WARM_UP:]


def _is_enough(rounds: list[list[_Answer]], turns: Turns, begun: float, clock: Callable[[], float]) -> bool:
    if len(rounds) < turns.rounds:
        return len(rounds) >= _FEWEST and turns.most_s < inf and clock() - begun >= turns.most_s
    return clock() - begun >= turns.budget_s or _is_narrow(rounds)


def _is_narrow(rounds: list[list[_Answer]]) -> bool:
    effect = effect_of(_medians(rounds, "ns"))
    return effect.high - effect.low <= _NARROW


def _step_by_step(variants: list[Variant]) -> list[list[_Answer]]:
    """The later half of the twelve steps that every scenario has. Memory is compared at the same step of both, and
    never after a variant starts over, as the process then still holds what was freed."""
    return [[variant.run(1) for variant in variants] for _ in range(_MEMORY_STEPS)][_MEMORY_STEPS // 2 :]


def _medians(rounds: list[list[_Answer]], name: str) -> Int64s:
    return np.array([[int(np.median(answer[name])) for answer in answers] for answers in rounds], dtype=np.int64)


def effect_of(values: Int64s, seed: int = 0) -> Share:
    """The effect in ``values`` (a row per round: pitfall, fix) with its 95 % interval."""
    effects = 1 - values[:, 1] / np.maximum(values[:, 0], 1)
    chosen = np.random.default_rng(seed).integers(len(effects), size=(_RESAMPLES, len(effects)))
    low, high = np.percentile(np.median(effects[chosen], axis=1), _CONFIDENCE)
    return Share(float(np.median(effects)), float(low), float(high))


def _predicted(diagnosis: Diagnosis, found: list[Finding], kind: str, measurement: Measurement) -> Share | None:
    """The saving of the finding on the pitfall, or of all of them together if the mistake is on several lines."""
    first = next((finding.saving for finding in found if finding.saving), None)
    saving = diagnosis.total if len(found) > 1 and diagnosis.total else first
    if saving is None:
        return None
    if kind == "time":
        return Share(saving.fraction, saving.low, saving.high)
    return _predicted_memory(found, saving, measurement)


def _predicted_memory(found: list[Finding], saving: Saving, measurement: Measurement) -> Share:
    """Bytes as a share of the pitfall's peak. What grows with each step has grown for the median number of steps."""
    peak = max(1.0, float(np.median(measurement.peak_bytes[:, 0])))
    grows = any(GROWTH_EVIDENCE in finding.evidence for finding in found)
    grown = float(np.median(measurement.number[:, 0])) if grows else 1.0
    share = min(1.0, saving.bytes * grown / peak)
    return Share(share, share, share)


def _judge(measured: Share, fired: bool, exact_line: bool, silent: bool) -> str:
    if not fired:
        return "the rule did not fire"
    if not exact_line:
        return "the rule named another line"
    if not silent:
        return "the rule fired on the fix too"
    return _judge_effect(measured)


def _judge_effect(measured: Share) -> str:
    if measured.low > 0:
        return HOLDS
    return "the fix made it worse" if measured.high < 0 else INCONCLUSIVE


class Variant:
    """The process that runs one variant. Its first turn has ``first`` steps, as it is unknown how long one takes."""

    def __init__(
        self,
        scenario: Scenario,
        variant: str,
        device: str,
        environment: Mapping[str, str],
        start: Start = start_process,
    ) -> None:
        self._name = f"{scenario.name}, {variant}"
        self.first = 1 if device == "cpu" else _FIRST_ON_DEVICE
        child = "profkit.collect.launch.trial"
        self._process = start(child, [str(scenario.path), variant, device, scenario.effect], environment)

    def __enter__(self) -> Variant:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.communicate()

    def kill(self) -> None:
        """End it: a turn that is under way fails."""
        self._signal("SIGKILL")

    def _signal(self, name: str) -> None:
        """Send a signal to the process and its children, such as a loader's workers. On systems without process groups
        only kill it."""
        number = getattr(signal, name, None)
        if number is not None and hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
        elif name == "SIGKILL":
            self._process.kill()

    def run(self, steps: int) -> _Answer:
        """Run that many steps. The process is stopped between turns, or its workers would prepare what the next turn
        measures."""
        self._signal("SIGCONT")
        stdin, stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        try:
            stdin.write(f"{steps}\n")
            stdin.flush()
            answer: _Answer = json.loads(stdout.readline())
        except (OSError, ValueError):
            said = _last_line(self._process.communicate()[1])
            raise ProfkitError(f"{self._name}: the scenario failed: {said}") from None
        self._signal("SIGSTOP")
        return answer


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ProfkitError("a process without pipes")
    return stream


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
