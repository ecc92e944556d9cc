"""From a recording to a diagnosis: read it, let every rule judge, price the findings and rank them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from profkit.core.errors import UnreadableInput
from profkit.core.failures import attempt
from profkit.core.files.kinds import links_out
from profkit.core.forks import share_out
from profkit.core.units import format_share, format_time
from profkit.derive.facts import Facts
from profkit.derive.launch.launch import Launch
from profkit.derive.memory.allocator import Allocator, DeviceUse
from profkit.derive.memory.purposes import LABELS, label_of
from profkit.derive.memory.timeline import memory_timeline
from profkit.derive.steps.boundaries import measured_numbers
from profkit.diagnosis.costly_places import tell_costliest
from profkit.diagnosis.elsewhere import find_elsewhere
from profkit.diagnosis.health import check_recording, check_snapshot, find_obstacles, find_obstacles_of_run
from profkit.diagnosis.health.device import describe_unrecorded
from profkit.diagnosis.health.memory import describe_end_of_memory
from profkit.diagnosis.health.program import check_failure
from profkit.diagnosis.health.window import describe_start
from profkit.diagnosis.interlude import find_interlude, in_run
from profkit.diagnosis.judge import Outcome, PricedFinding, edit_behind, gather, judging_tasks, price_together, weigh
from profkit.diagnosis.pictures.from_facts import draw
from profkit.diagnosis.rooflines import tell_roofline
from profkit.diagnosis.serving import tell_serving
from profkit.diagnosis.settings import EVERYTHING, UNCHOSEN, Settings, is_left_out
from profkit.diagnosis.verdict import conclude
from profkit.findings.values import (
    FULL_AFTER_EVIDENCE,
    MEASURED_EVIDENCE,
    CostlyPlace,
    DeviceMemory,
    Diagnosis,
    Finding,
    HotSpot,
    KernelFamily,
    Kind,
    Location,
    MemoryLine,
    MemoryPart,
    MemoryPeak,
    MemorySeries,
    MemoryTimeline,
    RunSummary,
    Saving,
    Severity,
    TimeShare,
    Timing,
    WorkerTimes,
    is_worth_mending,
    no_gain_note,
    rank_order,
    unexplained,
)
from profkit.patterns.allocator.lines import allocator_of, holding_lines
from profkit.patterns.allocator.purposes import purposes_of
from profkit.patterns.kernel_names import short_kernel_name
from profkit.patterns.loader_accounts import WorkerAccount, loader_accounts
from profkit.patterns.memory_use import memory_uses
from profkit.patterns.places.events import call_site
from profkit.patterns.program import program_elementwise, program_traffic
from profkit.patterns.ranks.bandwidths import bus_rates
from profkit.patterns.step_calls import step_calls
from profkit.patterns.time.bounds import Bound
from profkit.patterns.time.communicating import communicating
from profkit.patterns.time.contended import beside_communication
from profkit.patterns.time.hottest import hottest_lines, hottest_operators, hottest_updates
from profkit.patterns.time.kernels import kernel_families
from profkit.patterns.time.shares import time_parts
from profkit.patterns.time.wait_causes import wait_causes
from profkit.patterns.transfers.copies import program_transfers
from profkit.patterns.transfers.created import created_tensors
from profkit.patterns.whole_run.phases import whole_run
from profkit.rules import all_rules
from profkit.run import directory as run_directory
from profkit.run.directory import Run
from profkit.run.experiment import Answer, Experiment, Measurement
from profkit.run.plan import COUNTED_AS
from profkit.run.whole_run import RunAccount, load_account
from profkit.savings.cost_models.links import with_links
from profkit.savings.launch.launch_savings import predict_together
from profkit.savings.replay import host_at_work_ns
from profkit.savings.roofline.launches import roofline_of
from profkit.savings.simulate import measured_saving
from profkit.savings.step_time import StepTime, step_time
from profkit.savings.taken_out import account_of
from profkit.savings.trial import Trial
from profkit.trace.cache import Origin
from profkit.trace.containers import OnProgress
from profkit.trace.events import NONE, Rows, Trace, no_trace
from profkit.trace.limits import memory_limit
from profkit.trace.reading import holds_snapshot, read_trace
from profkit.trace.snapshot.columns import Snapshot
from profkit.trace.worker_records import read_workers

_SHARED_EVENTS = 100_000
"""Fewer events are judged in a fifth of a second: a second process would save next to nothing."""
_NEEDED_BY_MOST: tuple[Callable[[Facts], Any], ...] = (
    program_traffic,
    program_elementwise,
    wait_causes,
    created_tensors,
    program_transfers,
    host_at_work_ns,
    time_parts,
    step_time,
    roofline_of,
)
"""Both processes would derive these, which takes 0.1 s more CPU time at 50 and at 200 MB."""
_MOST_LINES = 8
"""Lines that hold memory at the peak: about as many as fit beside the parts."""
_LEAST_LINE_SHARE = 0.01
_SAME_IN_ACCOUNT = (
    "device",
    "allocated_bytes",
    "reserved_bytes",
    "inactive_split_bytes",
    "cached_bytes",
    "split_bytes",
    "peak_bytes",
    "reserved_peak_bytes",
    "older_bytes",
)
_MUCH_GAINED = 0.3
"""Of the step. Who gains so much looks again afterwards."""
_MUCH_LEFT, _TIMES_GAINED = 0.25, 2.0
"""A place that no rule explains is told beside findings if it takes so much of the step, and of their gain."""
_MOST_EXPERIMENTS = 8
"""Each takes two seconds, and a diagnosis must not take minutes."""


def diagnose_path(path: Path, measure: Measure | None = None, settings: Settings = EVERYTHING) -> Diagnosis:
    """Diagnose a trace file, a memory snapshot or a run directory.

    Raises `UnreadableInput` for anything else.
    """
    return diagnose(read_facts(path), measure, settings)


def read_facts(
    path: Path,
    on_progress: OnProgress | None = None,
    launch: Launch | None = None,
    origin: Origin | None = None,
    card: str = "",
) -> Facts:
    """The facts of a trace file, of a memory snapshot, or of a run directory with its side files.

    ``on_progress`` hears how much of the trace has been read. ``launch`` is what the ranks of a launch did together,
    ``origin`` the recording that the trace is a copy of. ``card`` names the device, whatever the trace calls it.
    Raises `UnreadableInput`.
    """
    directory = path if path.is_dir() else path.parent
    if path.is_dir():
        trace_path, snapshot_path = run_directory.find_trace(path), run_directory.find_snapshot(path)
    else:
        trace_path, snapshot_path = (None, path) if holds_snapshot(path) else (path, None)
    if trace_path is None:
        return _without_trace(path, snapshot_path)
    trace = _on_card(read_trace(trace_path, on_progress, memory_limit(), origin), card)
    run = run_directory.load_run(directory)
    if run.trace != trace_path.name:
        return Facts(trace, Run(trace=trace_path.name), launch=launch)
    snapshot, unread = _read_beside(directory)
    return Facts(
        trace.with_health(*unread),
        run,
        run_directory.load_callsites(directory),
        run_directory.load_live(directory),
        run_directory.load_samples(directory),
        read_workers(directory),
        run_directory.load_sources(directory),
        snapshot,
        run_directory.load_device_memory(directory),
        launch,
        load_account(directory),
        run_directory.load_stacks(directory),
        _read_interlude(directory),
    )


def _read_interlude(directory: Path) -> Facts | None:
    """What was recorded between the steps, if it can be read: a recording of the steps is worth its diagnosis."""
    path = directory / run_directory.INTERLUDE
    if path.is_symlink() or not path.is_dir():
        return None
    trace, run = run_directory.find_trace(path), run_directory.load_run(path)
    if trace is None or run.trace != trace.name:
        return None
    facts, _ = attempt("what was recorded between the steps", partial(read_facts, path), None)
    return facts


def _without_trace(path: Path, snapshot_path: Path | None) -> Facts:
    """The facts of a memory snapshot alone, or of a run that was only watched."""
    account = load_account(path) if path.is_dir() else RunAccount()
    if snapshot_path is None and not account.stacks:
        raise UnreadableInput(path, f"holds no trace (*.pt.trace.json or *.pt.trace.json.gz){links_out(path)}")
    alone = None if snapshot_path is None else _read_snapshot(snapshot_path)
    if not path.is_dir():
        return Facts(no_trace(), snapshot=alone)
    sources, run = run_directory.load_sources(path), run_directory.load_run(path)
    return Facts(no_trace(), run, sources=sources, snapshot=alone, account=account)


def _on_card(trace: Trace, card: str) -> Trace:
    return replace(trace, recording=structs.replace(trace.recording, devices=(card,))) if card else trace


def _read_snapshot(path: Path) -> Snapshot:
    from profkit.trace.snapshot.reader import read_snapshot  # few recordings need this reader

    return read_snapshot(path, memory_limit())


def _read_beside(directory: Path) -> tuple[Snapshot | None, tuple[str, ...]]:
    """The snapshot of a run directory, or a note if it cannot be read: the trace is worth its diagnosis anyway."""
    path = run_directory.find_snapshot(directory)
    try:
        return None if path is None else _read_snapshot(path), ()
    except UnreadableInput as error:
        return None, (f"the memory snapshot of the run was not read: {error.cause}",)


Measure = Callable[[Facts, Sequence[Experiment]], Sequence[Answer]]
"""Runs experiments on the machine of the recording. The caller passes in `profkit.diagnosis.experiments.measure`."""


def diagnose(facts: Facts, measure: Measure | None = None, settings: Settings = EVERYTHING) -> Diagnosis:
    """Let every rule judge the facts. Findings are ranked; a rule that could not look is in ``skipped``.

    ``settings`` choose the rules. With ``measure``, a finding that has an experiment is priced by it where it can run.
    """
    return diagnose_with_rows(facts, measure, settings)[0]


def diagnose_with_rows(
    facts: Facts, measure: Measure | None = None, settings: Settings = EVERYTHING
) -> tuple[Diagnosis, Sequence[Rows]]:
    """The diagnosis, and the events behind each finding: none for a finding from a memory snapshot."""
    has_steps = facts.has_trace or (facts.snapshot is None and not facts.account.stacks)
    look = _look_at_steps if has_steps else _look_without_steps
    outcomes, timing, health = look(facts, settings, measure is not None)
    judged, skipped = gather(outcomes)
    ignored = Counter(one.rule for one in judged if is_left_out(one.finding))
    judged = [one for one in judged if not is_left_out(one.finding)]
    notes: list[str] = []
    if measure is not None:
        (judged, unmeasured), broke = attempt("--measure", partial(_measure_all, facts, judged, measure), (judged, []))
        notes += [*unmeasured, *broke]
    unpriced = {one.rule: one.suspicion.unpriced for one in judged if _awaits_price(one)}
    unchosen = {name: UNCHOSEN for name in all_rules() if not settings.wants(name)}
    judged = [one for one in judged if not _awaits_price(one) and not _is_worthless(one.finding)]
    total, no_total = attempt("what all faults cost together", partial(_predict_total, facts, judged), None)
    judged, no_sharing = attempt("what the findings give back together", partial(price_together, facts, judged), judged)
    found, rows = _with_interlude(facts, judged, settings)
    memory, no_account = attempt("the account of the device's memory", partial(_account_memory, facts), ())
    diagnosis = Diagnosis(
        run=_summarise_program(facts.run),
        timing=timing,
        findings=found,
        skipped={**unpriced, **skipped, **unchosen},
        health=(*health, *notes, *no_total, *no_sharing, *no_account),
        total=total,
        memory=memory,
        ignored=dict(ignored),
    )
    whole, unaccounted = attempt("the account of the whole run", partial(whole_run, facts), None)
    diagnosis = replace(diagnosis, whole_run=whole, health=(*diagnosis.health, *unaccounted))
    failure, unknown = attempt("what ended the program", partial(describe_end_of_memory, facts), None)
    diagnosis = replace(diagnosis, failure=failure, health=(*diagnosis.health, *unknown))
    if has_steps:
        diagnosis = _with_steps(facts, diagnosis, rows)
    elsewhere, _ = attempt("where the rest of the time lies", partial(find_elsewhere, facts), None)
    diagnosis = replace(diagnosis, elsewhere=elsewhere)
    beginning, _ = attempt("what the recording began with", partial(describe_start, facts), "")
    return replace(diagnosis, verdict=conclude(diagnosis, _obstacles(facts, diagnosis, has_steps), beginning)), rows


def _with_interlude(
    facts: Facts, judged: Sequence[PricedFinding], settings: Settings
) -> tuple[tuple[Finding, ...], Sequence[Rows]]:
    """The findings, those between the steps among them, ranked, and the events behind each: none for these."""
    found = [_with_source(facts, one.finding) for one in judged]
    rows = [one.suspicion.rows for one in judged]
    more, _ = attempt("what passes between the steps", lambda: tuple(_between(facts, found, settings)), ())
    found, rows = [*found, *more], [*rows, *(np.zeros(0, dtype=np.int64) for _ in more)]
    order = rank_order(found)
    return tuple(found[at] for at in order), [rows[at] for at in order]


def _between(facts: Facts, known: Sequence[Finding], settings: Settings) -> Iterator[Finding]:
    """What is to be changed between the steps, with its share of the run."""
    if (recorded := find_interlude(facts)) is None:
        return
    beside = recorded[0]
    judged, _ = gather([task() for task in judging_tasks(beside, settings)])
    found = [_with_source(beside, one.finding) for one in judged if not _awaits_price(one)]
    yield from in_run(facts, [one for one in found if not (is_left_out(one) or _is_worthless(one))], known)


def _look_at_steps(
    facts: Facts, settings: Settings, measured: bool
) -> tuple[Sequence[Outcome], Timing, tuple[str, ...]]:
    tasks: list[Callable[[], Any]] = [*judging_tasks(facts, settings, with_experiments=measured)]
    tasks += [partial(_check, facts), partial(_time, facts)]  # the last are done first, and these take long
    is_shared = not measured and len(facts.trace.events) >= _SHARED_EVENTS
    *outcomes, health, (timing, not_timed) = _share_out(facts, tasks) if is_shared else [task() for task in tasks]
    return outcomes, timing, (*health, *not_timed)


def _look_without_steps(
    facts: Facts, settings: Settings, measured: bool
) -> tuple[Sequence[Outcome], Timing, tuple[str, ...]]:
    """For a memory snapshot alone, or a run that was only watched."""
    outcomes = [task() for task in judging_tasks(facts, settings, with_experiments=measured)]
    notes, unchecked = attempt("checking the snapshot", partial(check_snapshot, facts), ())
    return outcomes, Timing(0, None, ""), (*notes, *unchecked)


def _with_steps(facts: Facts, diagnosis: Diagnosis, rows: Sequence[Rows]) -> Diagnosis:
    """With what is told of recorded steps besides the findings."""
    workers, no_workers = attempt("the account of the DataLoader's workers", partial(_account, facts), ())
    run, no_device = attempt("naming the device", partial(_summarise, facts), diagnosis.run)
    peaks, untold = attempt("how full memory was", partial(_tell_peaks, facts), ())
    pictures, not_drawn = attempt("the pictures of the steps", partial(draw, facts, rows), None)
    kernels, not_named = attempt("what the device's kernels do", partial(_tell_kernels, facts), ())
    roofline, not_counted = attempt("how near the launches come to the roofline", partial(tell_roofline, facts), None)
    serving, not_read = attempt("the steps of the engine", partial(tell_serving, facts), ())
    diagnosis = replace(
        diagnosis,
        run=run,
        workers=workers,
        peaks=peaks,
        pictures=pictures,
        kernels=kernels,
        roofline=roofline,
        serving=serving,
        cannot_judge=attempt("", partial(describe_unrecorded, facts), None)[0],
        health=(*diagnosis.health, *no_workers, *no_device, *untold, *not_drawn, *not_named, *not_counted, *not_read),
    )
    major = [finding for finding in diagnosis.findings if finding.severity in (Severity.HIGH, Severity.MEDIUM)]
    gained = max((finding.saving.fraction for finding in major if finding.saving is not None), default=0.0)
    if gained >= _MUCH_GAINED:
        return diagnosis
    costliest, untold = attempt("what takes most of the step", partial(tell_costliest, facts), ())
    if major:
        left = tuple(_beyond(major, gained, costliest))
        return replace(diagnosis, costliest=left, health=(*diagnosis.health, *untold))
    if check_failure(facts) is not None:
        return diagnosis  # what was recorded is no step: most of it are imports
    # Nothing important to change: the reader needs a place to begin.
    hottest, no_hottest = attempt("finding the hottest lines and operators", partial(_find_hottest, facts), ())
    return replace(diagnosis, hottest=hottest, costliest=costliest, health=(*diagnosis.health, *no_hottest, *untold))


def _beyond(major: Sequence[Finding], gained: float, places: Sequence[CostlyPlace]) -> Iterator[CostlyPlace]:
    """The places that take far more than the findings would give back, and that none of them names: a small gain must
    not hide them."""
    told = {(place.file, place.line) for one in major for place in (one.location, *one.also) if place is not None}
    for one in unexplained(places):
        is_much = one.fraction >= max(_MUCH_LEFT, _TIMES_GAINED * gained)
        if is_much and one.location is not None and (one.location.file, one.location.line) not in told:
            yield one


def _obstacles(facts: Facts, diagnosis: Diagnosis, has_steps: bool) -> Sequence[str]:
    """Why finding nothing would not mean that the program is fine."""
    if has_steps:
        looked = len(diagnosis.skipped) < len(all_rules())
        return [*find_obstacles(facts), *(() if looked else ("no rule could look at it",))]
    if facts.snapshot is None:
        return find_obstacles_of_run(facts)
    is_known = any(one.peak_bytes for one in diagnosis.memory)
    return () if is_known else ("the snapshot holds no memory of any device",)


def _with_source(facts: Facts, finding: Finding) -> Finding:
    return finding if finding.location is None else replace(finding, location=finding.location.within(facts.sources))


def _find_hottest(facts: Facts) -> tuple[HotSpot, ...]:
    sites = ((spot.fraction, call_site(facts, spot.site)) for spot in hottest_lines(facts))
    lines = (HotSpot(round(fraction, 4), Location.of(site)) for fraction, site in sites if site is not None)
    operators = (HotSpot(round(spot.fraction, 4), operator=spot.name) for spot in hottest_operators(facts))
    updates = ((spot, call_site(facts, spot.site)) for spot in hottest_updates(facts))
    optimizers = (
        HotSpot(round(spot.fraction, 4), Location.of(site) if site else None, spot.name) for spot, site in updates
    )
    return (*lines, *optimizers, *operators)


def _tell_kernels(facts: Facts) -> tuple[KernelFamily, ...]:
    return tuple(
        KernelFamily(
            family=one.family.value,
            step_ns=int(one.step_ns),
            fraction=round(one.fraction, 4),
            count=round(one.count, 2),
            name=short_kernel_name(facts.trace.names[one.code]),
            name_fraction=round(one.code_fraction, 4),
        )
        for one in kernel_families(facts)
    )


def _share_out(facts: Facts, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Let two processes work through the tasks, after deriving what most tasks need."""
    for name in ("lines", "operators", "launches", "waits", "memory", "updates", "disturbance"):
        attempt(name, partial(getattr, facts, name), None)  # before the fork, so that both have it
    for derive in _NEEDED_BY_MOST:
        attempt(derive.__name__, partial(derive, facts), None)
    attempt("step_calls", lambda: step_calls(facts) if facts.operators.has_shapes else None, None)
    return share_out(tasks)


def _measure_all(facts: Facts, judged: list[PricedFinding], measure: Measure) -> tuple[list[PricedFinding], list[str]]:
    """The findings, priced by their experiment if they have one, and a note for each that could not be."""
    chosen = [
        i
        for i, one in enumerate(judged)
        if one.suspicion.trial is not None and (one.finding.severity is not Severity.INFO or _awaits_price(one))
    ]
    chosen = chosen[:_MOST_EXPERIMENTS]
    if not chosen:
        return judged, ["--measure: no finding has an experiment that could take the place of its model"]
    trials = [trial for i in chosen if (trial := judged[i].suspicion.trial)]
    answers = measure(facts, [trial.experiment for trial in trials])
    priced, notes = list(judged), []
    for i, trial, answer in zip(chosen, trials, answers, strict=True):
        if answer.measurement is None:
            left = "has no price" if _awaits_price(judged[i]) else "keeps its model's price"
            notes.append(f"--measure: {judged[i].rule} {left}: {answer.failed}")
        else:
            priced[i] = _price_as_measured(facts, judged[i], trial, answer.measurement)
            notes += _describe_waits(judged[i].rule, answer.measurement)
            if _is_worthless(priced[i].finding):
                notes.append(_describe_no_gain(judged[i].rule, answer.measurement))
    return priced, notes


def _describe_waits(rule: str, found: Measurement) -> list[str]:
    """That others had the processor most of the time; nothing if they did not."""
    if not found.waited:
        return []
    beside = f"other programs had the processor for {format_share(found.waited)} of the time"
    return [f"--measure: {rule} was measured in one thread, without its waits, because {beside}: its range is wide"]


def _describe_no_gain(rule: str, found: Measurement) -> str:
    before, after = format_time(found.first_ns), format_time(found.second_ns)
    return f"{no_gain_note(rule)}: what takes {before} a step on this machine takes {after} with the change"


def _price_as_measured(facts: Facts, judged: PricedFinding, trial: Trial, found: Measurement) -> PricedFinding:
    """The finding, priced by how much of the time the experiment left; the rounds give the range."""
    edits = trial.edit_of(found.low), trial.edit_of(found.factor), trial.edit_of(found.high)
    saving = measured_saving(facts, edits, judged.suspicion.size_bytes)
    half_range = (saving.high - saving.low) / 2 / max(saving.fraction, 1e-9)
    replaced = structs.replace(edits[1], uncertainty=min(1.0, half_range))
    evidence = {
        MEASURED_EVIDENCE: round(found.factor, 4),
        "measured_ns_as_it_is": found.first_ns,
        "measured_ns_with_the_fix": found.second_ns,
    }
    noted = judged.finding.evidence.get(FULL_AFTER_EVIDENCE)
    full_ns = float(noted) if isinstance(noted, (int, float)) else None
    finding = replace(
        judged.finding,
        saving=saving,
        severity=weigh(saving, judged.suspicion, full_ns),
        evidence={**judged.finding.evidence, **evidence},
        account=account_of(facts, replaced),
    )
    return structs.replace(judged, finding=finding, edit=replaced)


def _predict_total(facts: Facts, judged: list[PricedFinding]) -> Saving | None:
    """What fixing all faults at once gives back: less than the sum, as fixes overlap. None for fewer than two."""
    mended = (edit_behind(one) for one in judged if is_worth_mending(one.finding))
    edits = [edit for edit in mended if edit is not None]
    return predict_together(facts, edits) if len(edits) > 1 else None


def _awaits_price(judged: PricedFinding) -> bool:
    """Only an experiment can price it, and none has."""
    return bool(judged.suspicion.unpriced) and judged.edit is None


def _is_worthless(finding: Finding) -> bool:
    """An opportunity is a trade: without a gain it is not worth a line."""
    return finding.kind is Kind.OPPORTUNITY and finding.severity is Severity.INFO


def _check(facts: Facts) -> tuple[str, ...]:
    notes, failure = attempt("checking the recording", partial(check_recording, facts), ())
    return (*notes, *failure)


def _summarise(facts: Facts) -> RunSummary:
    name = next((name for name in facts.trace.recording.devices if name), None)
    unnamed = "a GPU that the trace does not name" if facts.device.present else facts.run.device
    return replace(_summarise_program(facts.run), device=name or unnamed)


def _summarise_program(run: Run) -> RunSummary:
    files = {"trace": run.trace} if run.trace else {}
    return RunSummary(run.command, run.python, run.torch, run.device, run.started, files)


def _is_counted(run: Run) -> bool:
    """Whether the steps have the program's own numbers. Nothing counts steps before a later window begins."""
    return run.step_signal is not None and run.window == 1


def _describe_steps(facts: Facts) -> str:
    signal, number = COUNTED_AS.get(facts.run.step_signal or "", facts.steps.source), facts.run.signals_per_step
    if facts.run.one_in > 1:
        return f"{signal}: the long one in {facts.run.one_in}, {format_share(facts.run.share_of_time)} of the time"
    return signal if number == 1 else f"{signal}, {number} to a step"


def _time(facts: Facts) -> tuple[Timing, tuple[str, ...]]:
    """The times of the steps and where they went, and a note for each part that failed."""
    recorded = StepTime(facts.steps.usual_ns)
    found, not_bound = attempt("the step without the recording", partial(step_time, facts), recorded)
    timing, not_timed = attempt("timing the steps", partial(_time_steps, facts, found), Timing(0, None, ""))
    return replace(timing, shares=_share(found.rows, found.ns)), (*not_bound, *not_timed)


def _time_steps(facts: Facts, found: StepTime) -> Timing:
    steps, exchange = facts.steps, communicating(facts)
    least_ns, most_ns = found.range_ns
    return Timing(
        steps=steps.measured_count,
        step_time_ns=steps.usual_ns,
        steps_from=_describe_steps(facts),
        unprofiled_step_time_ns=found.unrecorded_ns,
        profiler_overhead_fraction=found.recorded_ns / found.unrecorded_ns - 1 if found.unrecorded_ns else None,
        measured_steps=measured_numbers(facts.trace, steps) if _is_counted(facts.run) else None,
        unprofiled_from=found.source,
        bound_by=_value(found.bound_by),
        device_step_time_ns=found.busy_ns,
        host_step_time_ns=found.host_ns,
        unprofiled_least_time_ns=least_ns,
        communication_ns=exchange.time_ns if exchange else None,
        communication_hidden=round(exchange.hidden, 4) if exchange else None,
        recorded_bound_by=_value(found.recorded_bound_by),
        recorded_shares=_share(found.recorded_rows, found.recorded_ns) if found.source and found.busy_ns else (),
        unprofiled_most_time_ns=most_ns,
        held_up_step_time_ns=found.held_up_ns,
        exchange_rates=with_links(facts, bus_rates(facts), exchange.exposed_ns if exchange else 0.0),
        beside_communication=beside_communication(facts),
    )


def _value(bound: Bound | None) -> str | None:
    return None if bound is None else bound.value


def _share(rows: Sequence[tuple[str, float]], step_ns: int) -> tuple[TimeShare, ...]:
    """The table of a step of this length."""
    return tuple(TimeShare(label, int(time), time / max(step_ns, 1)) for label, time in rows if time > 0)


def _tell_peaks(facts: Facts) -> tuple[MemoryPeak, ...]:
    known = (one for one in memory_uses(facts) if one.used_bytes)
    return tuple(
        MemoryPeak(one.where, one.total_bytes, one.allocated_bytes, one.reserved_bytes, one.seen_bytes) for one in known
    )


def _account(facts: Facts) -> tuple[WorkerTimes, ...]:
    return tuple(_times_of(worker) for loader in loader_accounts(facts) for worker in loader.workers)


def _times_of(worker: WorkerAccount) -> WorkerTimes:
    elapsed_ns = max(worker.elapsed_ns, 1)
    first, last = worker.private_first_bytes, worker.private_bytes
    return WorkerTimes(
        loader=worker.loader,
        worker=worker.worker,
        batches=worker.batches,
        time_ns=worker.elapsed_ns,
        fetch=worker.fetch_ns / elapsed_ns,
        collate=worker.collate_ns / elapsed_ns,
        waiting=worker.waiting_ns / elapsed_ns,
        cpu_ns_per_batch=worker.cpu_ns // max(worker.batches, 1),
        hand_over_ns_per_batch=worker.send_ns // max(worker.batches, 1),
        private_bytes=last,
        private_growth_bytes=None if first is None or last is None else last - first,
    )


def _account_memory(facts: Facts) -> tuple[DeviceMemory, ...]:
    """What the memory snapshot says of each device that holds, or held, any memory."""
    uses = facts.allocator.devices if facts.allocator is not None else ()
    return tuple(_account_device(facts, use) for use in uses if use.peak_bytes or use.reserved_bytes)


def _account_device(facts: Facts, use: DeviceUse) -> DeviceMemory:
    allocator = allocator_of(facts)
    at_peak, whole = allocator.live_at_peak(use), max(use.peak_bytes, 1)
    parts = purposes_of(allocator, at_peak)
    lines = [line for line in holding_lines(facts, at_peak) if line.size_bytes >= _LEAST_LINE_SHARE * whole]
    times_ns = allocator.snapshot.history.time_ns[slice(*use.rows)]
    is_timed = use.has_history and bool((times_ns >= 0).all())
    return DeviceMemory(
        **{name: getattr(use, name) for name in _SAME_IN_ACCOUNT},
        history_entries=use.rows[1] - use.rows[0],
        peak_ns=int(allocator.snapshot.history.time_ns[use.peak_row] - times_ns[0])
        if is_timed and use.peak_row != NONE
        else None,
        history_ns=int(times_ns[-1] - times_ns[0]) if is_timed else None,
        parts=tuple(
            MemoryPart(label_of(part, use.has_history), size, round(size / whole, 4)) for part, size in parts.items()
        ),
        lines=tuple(
            MemoryLine(
                line.size_bytes,
                round(line.size_bytes / whole, 4),
                line.count,
                Location.of(line.site) if line.site is not None else None,
                line.why,
                Location.of(line.inside) if line.inside is not None else None,
                line.inside_bytes,
            )
            for line in lines[:_MOST_LINES]
        ),
        timeline=_draw_timeline(allocator, use),
    )


def _draw_timeline(allocator: Allocator, use: DeviceUse) -> MemoryTimeline | None:
    found = memory_timeline(allocator, use)
    if found is None:
        return None
    series = (MemorySeries(LABELS[purpose], tuple(size.tolist())) for purpose, size in found.held_bytes.items())
    return MemoryTimeline(tuple(found.entries.tolist()), tuple(found.reserved_bytes.tolist()), tuple(series))
