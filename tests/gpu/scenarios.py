"""Scenarios, recorded and measured by turns, and what profkit said about them.

Of each, four processes: two that record, two that are measured. They begin with PyTorch imported, as forks of a process
that has done so. Those of the next scenario begin with the GPU while this one is measured, and then wait. Only one
works on the GPU at any time.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from profkit.core.errors import ProfkitError
from profkit.diagnosis import experiments
from profkit.diagnosis.catalogue import Scenario, list_scenarios
from profkit.diagnosis.pipeline import diagnose_path
from profkit.diagnosis.verify import (
    NOT_HERE,
    SILENCE,
    Measurement,
    Process,
    Proof,
    Turns,
    Variant,
    cannot_gain_here,
    environment_of,
    kind_of,
    measure_variants,
    only_shows_on_gpu,
    prove,
    running,
    start_process,
)
from profkit.findings.values import Diagnosis
from tests.gpu.children import Child
from tests.gpu.machine import Machine
from tests.gpu.nursery import Nursery
from tests.gpu.rows import COULD_NOT, DONE, FAILED, Figure, Part, PartFailed, Row

_NAME = "scenarios"
_RECORDER = "profkit.collect.launch.scenario"
"""profkit's own, so that no line of these tests is among the program's."""
_VARIANTS = ("pitfall", "fix")
_CPUS_AHEAD = 8
"""With so many the next scenario's four processes may begin beside what is running."""
_RECORDING_S, _MEASURING_S, _BEGINNING_S = 90.0, 60.0, 60.0
_TURNS = Turns(rounds=6, budget_s=4.0, most_s=6.0)
"""A scenario in ten seconds. An interval of two points is enough to see a wrong price."""
_TOUCH = "tests.gpu.programs.touch"
_SHOWN = 4


def in_order(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Those that need a GPU, those that only show on one, and then the others."""
    return sorted(scenarios, key=lambda scenario: (not scenario.needs_gpu, scenario.effect != "time on a GPU"))


def rows(
    machine: Machine, left_s: Callable[[], float], chosen: Sequence[Scenario] | None = None, known: Sequence[str] = ()
) -> Iterator[Row]:
    """A row for each scenario, without those whose names are ``known`` from another run."""
    scenarios = [one for one in in_order(chosen or list_scenarios()) if one.name not in known]
    possible = [scenario for scenario in scenarios if not (reason := _cannot(scenario, machine))]
    for scenario in scenarios:
        if reason := _cannot(scenario, machine):
            yield Row(_NAME, scenario.name, COULD_NOT + reason)
    with ExitStack() as stack:
        nursery, reason = _try_nursery(machine, left_s, stack) if possible else (None, "")
        if reason:
            yield Row(_NAME, "processes by forking", f"{COULD_NOT}{reason}")
        ahead: _Started | None = None
        for number, scenario in enumerate(possible):
            started = ahead or stack.enter_context(_Started(scenario, machine, nursery))
            following = possible[number + 1] if number + 1 < len(possible) else None
            ahead = None
            try:
                started.record(left_s)
                if following is not None and machine.cpus >= _CPUS_AHEAD:
                    ahead = stack.enter_context(_Started(following, machine, nursery))
                yield started.judge(left_s)
            except (ProfkitError, PartFailed) as error:
                yield Row(_NAME, scenario.name, f"{FAILED}{error}")
            finally:
                started.close()


def _try_nursery(machine: Machine, left_s: Callable[[], float], stack: ExitStack) -> tuple[Nursery | None, str]:
    """A process to fork others from, or why a fork cannot begin with the device."""
    try:
        nursery = stack.enter_context(Nursery(environment_of("time")))
        with Child("a fork", _TOUCH, machine.device, nursery=nursery) as first:
            first.finish(min(_BEGINNING_S, left_s()))
    except (PartFailed, OSError) as error:
        return None, str(error)
    return nursery, ""


def _cannot(scenario: Scenario, machine: Machine) -> str:
    if machine.device == "cpu":
        return NOT_HERE.removeprefix("not run: ") if only_shows_on_gpu(scenario) else ""
    return f"it needs {scenario.gpus} GPUs" if scenario.gpus > machine.gpus else ""


class _Started:
    """A scenario's processes, which wait."""

    def __init__(self, scenario: Scenario, machine: Machine, nursery: Nursery | None = None) -> None:
        self._scenario, self._machine, self._kind = scenario, machine, kind_of(scenario)
        self._nursery = nursery
        self._folder = machine.work / scenario.name
        self._stack = ExitStack()

    def __enter__(self) -> _Started:
        scenario, device, enter = self._scenario, self._machine.device, self._stack.enter_context
        self._folder.mkdir(parents=True, exist_ok=True)
        where = [str(self._folder / variant) for variant in _VARIANTS]
        self._recorders = [
            enter(
                Child(
                    f"{scenario.name}, {variant}",
                    _RECORDER,
                    *(str(scenario.path), variant, device, directory, "waits"),
                    environment=environment_of("time"),
                    nursery=self._nursery,
                )
            )
            for variant, directory in zip(_VARIANTS, where, strict=True)
        ]
        self._measured = [] if self._kind == SILENCE else enter(running(scenario, device, self._kind, self._start))
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
        """A fork, unless it needs settings that the C library reads only when a program begins."""
        if self._nursery is None or self._kind == "memory":
            return start_process(module, arguments, environment)
        return self._nursery.start(module, arguments)

    def close(self) -> None:
        self._stack.close()

    def record(self, left_s: Callable[[], float]) -> None:
        for recorder in self._recorders:
            recorder.finish(min(_RECORDING_S, left_s()))

    def judge(self, left_s: Callable[[], float]) -> Row:
        """Diagnose both recordings, measure, and compare."""
        name, variants = self._scenario.name, dict(zip(_VARIANTS, self._diagnose(), strict=True))
        recordings = {f"{self._machine.slug}/{name}/{variant}": self._folder / variant for variant in _VARIANTS}
        if reason := cannot_gain_here(self._scenario, variants["pitfall"]):
            return Row(_NAME, name, reason, _said(variants), recordings)
        measurement = None
        if self._measured:
            with _killed_after(min(_MEASURING_S, left_s()), self._measured):
                measurement = measure_variants(self._measured, self._kind, turns=_TURNS)
        proof = prove(self._scenario, variants["pitfall"], variants["fix"], measurement)
        figures = {**_shares(proof), **_measured_ms(measurement), **_said(variants)}
        return Row(_NAME, name, proof.verdict if proof.verdict != "holds" else DONE, figures, recordings)

    def _diagnose(self) -> list[Diagnosis]:
        measure = experiments.measure if self._scenario.needs_measuring else None
        return [diagnose_path(Path(self._folder / variant), measure) for variant in _VARIANTS]


@contextmanager
def _killed_after(limit_s: float, variants: Sequence[Variant]) -> Iterator[None]:
    """A variant that hangs does not hold up the others: its next answer is then missing."""
    timer = threading.Timer(limit_s, lambda: [variant.kill() for variant in variants])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shares(proof: Proof) -> dict[str, Figure]:
    shares: dict[str, Figure] = {"kind": proof.kind}
    for name, share in (("measured", proof.measured), ("predicted", proof.predicted)):
        shares |= {name: share and round(share.fraction, 4)}
        shares |= {f"{name} from": share and round(share.low, 4), f"{name} to": share and round(share.high, 4)}
    return {**shares, "on the line": proof.exact_line, "silent on the fix": proof.silent_on_fix}


def _measured_ms(measurement: Measurement | None) -> dict[str, Figure]:
    """Medians, and the least and the most of any turn."""
    if measurement is None:
        return {}
    told: dict[str, Figure] = {}
    for name, turns in zip(_VARIANTS, measurement.ns.T.tolist(), strict=True):
        told[f"{name} ms"] = statistics.median(turns) / 1e6
        told |= {f"{name} ms from": min(turns) / 1e6, f"{name} ms to": max(turns) / 1e6}
    return told


def _said(variants: dict[str, Diagnosis]) -> dict[str, Figure]:
    """What profkit says of each variant: the step's time, what bounds it, and the first findings."""
    told: dict[str, Figure] = {}
    for name, diagnosis in variants.items():
        timing = diagnosis.timing
        step_ns = timing.unprofiled_step_time_ns or timing.step_time_ns
        told[f"{name} ms said"] = None if step_ns is None else step_ns / 1e6
        told[f"{name} bound by"] = timing.bound_by
        told[f"{name} findings"] = ", ".join(finding.rule for finding in diagnosis.findings[:_SHOWN])
    return told


PART = Part(_NAME, "scenarios that need or can use a GPU: recorded, measured by turns, compared", 0.5, rows)
