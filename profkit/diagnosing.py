"""From a recording to a diagnosis: read it, derive, let every rule judge, price what they find, rank it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from profkit import run as run_directory
from profkit.derive.facts import Facts
from profkit.derive.places import call_site, enclosing_function
from profkit.derive.steps import measured_numbers
from profkit.errors import UnreadableInput
from profkit.findings import (
    GROWTH_EVIDENCE,
    Diagnosis,
    Finding,
    Kind,
    Location,
    RunSummary,
    Saving,
    Severity,
    TimeShare,
    Timing,
    is_worth_mending,
    rank,
    severity_of,
)
from profkit.health import check_recording
from profkit.rules import all_rules
from profkit.rules.base import CannotLook, Rule, Suspicion, missing_needs, reason_for
from profkit.run import Run
from profkit.savings.edits import Edit, combine
from profkit.savings.simulate import predict_saving, step_time_ns
from profkit.trace.kineto import read_kineto

OWN_ERROR = "failed inside profkit, please report it"
"""How the reason begins when a rule did not abstain but broke; the tests look for it."""


_STEP_SIGNALS = {
    "step()": "calls of step()",
    "optimizer": "the optimizer's steps",
    "dataloader": "the DataLoader's batches",
}
"""How profkit's own recordings say where the program's steps end; other recordings say it by their marks alone."""


def diagnose_path(path: Path) -> Diagnosis:
    """Diagnose a trace file or a run directory.

    Raises `UnreadableInput` for anything that is neither.
    """
    return diagnose(read_facts(path))


def read_facts(path: Path) -> Facts:
    """Everything that a trace file, or a run directory with its side files, says."""
    directory = path if path.is_dir() else path.parent
    trace_path = run_directory.find_trace(path) if path.is_dir() else path
    if trace_path is None:
        raise UnreadableInput(path, "holds no trace (*.pt.trace.json or *.pt.trace.json.gz)")
    trace = read_kineto(trace_path)
    run = run_directory.load_run(directory)
    if run.trace != trace_path.name:
        return Facts(trace, Run(trace=trace_path.name))
    return Facts(
        trace,
        run,
        run_directory.load_callsites(directory),
        run_directory.load_live(directory),
        run_directory.load_samples(directory),
    )


def diagnose(facts: Facts) -> Diagnosis:
    """Let every rule judge the facts. The result is ranked; a rule that could not look is in ``skipped``."""
    judged: list[tuple[Finding, Edit | None]] = []
    skipped: dict[str, str] = {}
    for rule in all_rules().values():
        missing = missing_needs(facts, rule.needs)
        if missing:
            skipped[rule.name] = reason_for(facts, missing[0])
            continue
        try:
            judged += [(_judge(facts, rule, suspicion), suspicion.edit) for suspicion in rule.check(facts)]
        except CannotLook as reason:
            skipped[rule.name] = str(reason)
        except Exception as error:  # one broken rule must not cost the user what the others found
            skipped[rule.name] = f"{OWN_ERROR}: {type(error).__name__}: {error}"
    return Diagnosis(
        run=_summarise(facts),
        timing=_time(facts),
        findings=rank([finding for finding, _ in judged if not _is_worthless(finding)]),
        skipped=skipped,
        health=check_recording(facts),
        total=_predict_total(facts, judged),
    )


def _predict_total(facts: Facts, judged: list[tuple[Finding, Edit | None]]) -> Saving | None:
    """What mending all faults at once gives back: they overlap, so it is less than their sum. None below two."""
    edits = [edit for finding, edit in judged if edit is not None and is_worth_mending(finding)]
    return predict_saving(facts, combine(edits)) if len(edits) > 1 else None


def _is_worthless(finding: Finding) -> bool:
    """An opportunity asks for a trade; one that gives nothing back is not worth a line."""
    return finding.kind is Kind.OPPORTUNITY and finding.severity is Severity.INFO


def _judge(facts: Facts, rule: Rule, suspicion: Suspicion) -> Finding:
    saving = predict_saving(facts, suspicion.edit, suspicion.size_bytes) if suspicion.edit else None
    if saving is None and suspicion.size_bytes:
        saving = Saving(0, 0.0, 0.0, 0.0, suspicion.size_bytes)
    growth = {GROWTH_EVIDENCE: suspicion.size_bytes} if suspicion.grows else {}
    per_step = round(len(suspicion.rows) / max(facts.steps.measured_count, 1))
    return Finding(
        rule=rule.name,
        kind=suspicion.kind or rule.kind,
        severity=_severity(saving, suspicion),
        message=suspicion.message,
        count=suspicion.count if suspicion.count is not None else max(1, per_step),
        confidence=suspicion.confidence,
        fix=suspicion.fix,
        location=suspicion.location or _locate(facts, suspicion),
        also=suspicion.also,
        saving=saving,
        evidence={**suspicion.evidence, **growth},
    )


def _severity(saving: Saving | None, suspicion: Suspicion) -> Severity:
    """Severity from the time; a lower peak counts too: medium from half of it, low from a tenth."""
    by_time = severity_of(saving, suspicion.grows)
    by_peak = (
        Severity.MEDIUM if suspicion.peak_fraction >= 0.5 else
        Severity.LOW if suspicion.peak_fraction >= 0.1 else Severity.INFO
    )  # fmt: skip
    return min(by_time, by_peak, key=lambda severity: severity.rank)


def _locate(facts: Facts, suspicion: Suspicion) -> Location | None:
    """The line that most of the rows come from; without marked lines the function around them."""
    sites = facts.lines.site[suspicion.rows]
    sites = sites[sites >= 0]
    site = call_site(facts, int(np.bincount(sites).argmax())) if sites.size else None
    if site is not None:
        return Location.of(site)
    around = enclosing_function(facts, suspicion.rows)
    return replace(Location.of(around), precision="def") if around else None


def _summarise(facts: Facts) -> RunSummary:
    run, devices = facts.run, facts.trace.recording.devices
    name = next((name for name in devices if name), None)
    device = name or ("a GPU that the trace does not name" if facts.device.present else run.device)
    files = {"trace": run.trace} if run.trace else {}
    return RunSummary(run.command, run.python, run.torch, device, run.started, files)


def _time(facts: Facts) -> Timing:
    steps, reference = facts.steps, facts.run.reference_step_ns
    unprofiled = int(np.median(reference)) if reference else None
    mean_ns = max(float(steps.duration_ns[steps.measured].mean()), 1.0)
    scale = step_time_ns(facts) / mean_ns
    return Timing(
        steps=steps.measured_count,
        step_time_ns=steps.median_ns,
        steps_from=_STEP_SIGNALS.get(facts.run.step_signal or "", steps.source),
        unprofiled_step_time_ns=unprofiled,
        profiler_overhead_fraction=steps.median_ns / unprofiled - 1 if unprofiled else None,
        measured_steps=measured_numbers(facts.trace, steps) if facts.run.step_signal else None,
        shares=tuple(TimeShare(label, int(time * scale), time / mean_ns) for label, time in facts.shares),
    )
