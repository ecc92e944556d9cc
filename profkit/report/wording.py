"""How a diagnosis is put into words: the sentences that the text, Markdown, HTML and SARIF reports share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from profkit.findings import (
    GROWTH_EVIDENCE,
    MEASURED_EVIDENCE,
    Diagnosis,
    Finding,
    Kind,
    Location,
    Severity,
    Timing,
    WorkerTimes,
    is_worth_mending,
)
from profkit.units import format_bytes, format_count, format_share, format_time

_MEASURED = "; measured on this machine"


def printable(text: str) -> str:
    """``text`` on one line, with every character that could steer a terminal or hide text written as its escape."""
    return _without_controls(" ".join(text.split()))


def _without_controls(line: str) -> str:
    return line if line.isprintable() else "".join(map(_visible, line))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def printable_lines(text: str) -> list[str]:
    """As `printable`, keeping the line breaks and the indentation of a piece of code."""
    lines = text.expandtabs(4).strip("\n").splitlines()
    return [_without_controls(line.rstrip()) for line in lines]


def faults(diagnosis: Diagnosis) -> list[Finding]:
    """The findings worth mending, worst first as they came."""
    return [finding for finding in diagnosis.findings if is_worth_mending(finding)]


def opportunities(diagnosis: Diagnosis) -> list[Finding]:
    return [f for f in diagnosis.findings if f.kind is Kind.OPPORTUNITY and f.severity is not Severity.INFO]


def remarks(diagnosis: Diagnosis) -> list[Finding]:
    """The findings too small to act on."""
    return [f for f in diagnosis.findings if f.severity is Severity.INFO]


def verdict(diagnosis: Diagnosis) -> str:
    """One line: the most important thing that the diagnosis says."""
    found = faults(diagnosis)
    if len(found) == 1:
        return f"1 fault {_price(found[0])}: {_short_name(found[0])}"
    if found and diagnosis.total is not None:
        together = format_share(diagnosis.total.fraction)
        worst = f"the worst {_price(found[0])}: {_short_name(found[0])}"
        return f"{len(found)} faults cost {together} of the step together; {worst}"
    if found:
        return f"{len(found)} faults; the worst {_price(found[0])}: {_short_name(found[0])}"
    if not diagnosis.timing.steps:
        return _nothing_timed(diagnosis)
    chances = opportunities(diagnosis)
    start = f"No fault, but {_opportunity_count(len(chances))}" if chances else "Nothing to fix"
    unseen = len(diagnosis.skipped)
    limit = f"; {format_count(unseen, 'rule')} could not look" if unseen else ""
    return f"{start}: {step_figure(diagnosis.timing)}{limit}"


def _nothing_timed(diagnosis: Diagnosis) -> str:
    if diagnosis.health:
        return f"Could not look: {printable(diagnosis.health[0])}"
    chances = opportunities(diagnosis)
    start = f"No fault, but {_opportunity_count(len(chances))}" if chances else "Nothing found"
    return f"{start}; the recording holds no steps to measure"


def _opportunity_count(number: int) -> str:
    return "1 opportunity" if number == 1 else f"{number} opportunities"


def _short_name(finding: Finding) -> str:
    """``retained-graph at train.py:31``."""
    where = f" at {short_place(finding.location)}" if finding.location else ""
    return f"{printable(finding.rule)}{where}"


def _price(finding: Finding) -> str:
    """The verdict's verb and amount: ``costs 43 % of the step``."""
    saving = finding.saving
    if saving is None:
        return "has no measured cost"
    if grows(finding) and (saving.fraction < 0.10 or saving.time_ns_per_step <= 0):
        return f"makes memory grow by {format_bytes(saving.bytes)} per step"
    if saving.time_ns_per_step > 0:
        return f"costs {format_share(saving.fraction)} of the step"
    return f"holds {format_bytes(saving.bytes)} of memory" if saving.bytes > 0 else "costs no time here"


def grows(finding: Finding) -> bool:
    """Whether ``saving.bytes`` is growth per step.

    The rule's evidence says so, or a high severity that the time alone would not earn: `severity_of` gives it to
    memory that grows without bound.
    """
    saving = finding.saving
    if saving is None or saving.bytes <= 0:
        return False
    return GROWTH_EVIDENCE in finding.evidence or (finding.severity is Severity.HIGH and saving.fraction < 0.10)


def cost(finding: Finding) -> str:
    """What a fault costs, or an opportunity would give back, to stand after such a label; honest where not known."""
    saving = finding.saving
    if saving is None:
        return "not measured: this recording does not say what mending it would give back"
    parts = []
    if saving.time_ns_per_step > 0:
        likely = _likely_range(saving.low, saving.high)
        share = f"{format_share(saving.fraction)} of the step{likely}{_MEASURED if is_measured(finding) else ''}"
        parts.append(f"{format_time(saving.time_ns_per_step)} per step ({share})")
    if grows(finding):
        parts.append(f"memory grows by {format_bytes(saving.bytes)} per step")
    elif saving.bytes > 0:
        parts.append(f"{format_bytes(saving.bytes)} of memory would come free")
    if not parts and is_measured(finding):
        return f"no time to gain{_MEASURED}"
    return "; ".join(parts) or "no time to gain in this recording: the rest of the step hides it"


def is_measured(finding: Finding) -> bool:
    """Whether the saving rests on an experiment and not on a model."""
    return MEASURED_EVIDENCE in finding.evidence


def _likely_range(low: float, high: float) -> str:
    low_text, high_text = format_share(low), format_share(high)
    return "" if low_text == high_text or high < 0.001 else f"; likely {low_text.removesuffix(' %')} to {high_text}"


def place(location: Location) -> str:
    """``train.py:31 in step``; where only the function is known, that is said."""
    file = printable(location.file)
    function = f" in {printable(location.function)}" if location.function else ""
    if location.line <= 0:
        return f"{file}{function}"
    if location.precision == "def":
        return f"{file}{function} (defined at line {location.line}; the calling line was not recorded)"
    return f"{file}:{location.line}{function}"


def short_place(location: Location) -> str:
    """``train.py:31``: the file without its folders, which may be those of another system."""
    name = printable(re.split(r"[\\/]", location.file)[-1] or location.file)
    if location.line <= 0:
        return name
    if location.precision == "def" and location.function:
        return f"{name}, in {printable(location.function)}"
    return f"{name}:{location.line}"


def step_figure(timing: Timing) -> str:
    """``5 steps of 12.3 ms``."""
    if timing.step_time_ns is None:
        return format_count(timing.steps, "step")
    return f"{format_count(timing.steps, 'step')} of {format_time(timing.step_time_ns)}"


def step_note(timing: Timing) -> str:
    """How the steps were found and timed, as one sentence; empty where there are none."""
    if not timing.steps:
        return ""
    parts = [f"{step_figure(timing)} (median)" if timing.step_time_ns is not None else step_figure(timing)]
    if timing.measured_steps is not None:
        first, last = timing.measured_steps
        parts.append(f"number {first} to {last} of the program (later ones were not looked at)")
    if timing.steps_from:
        parts.append(f"found from {printable(timing.steps_from)}")
    if timing.unprofiled_step_time_ns is not None:
        parts.append(f"{format_time(timing.unprofiled_step_time_ns)} without the profiler")
    if timing.profiler_overhead_fraction is not None:
        parts.append(f"recording added {format_share(timing.profiler_overhead_fraction)}")
    return ", ".join(parts)


def run_facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """What is known of the run, as labels and values."""
    run = diagnosis.run
    facts = (
        ("command", " ".join(run.command)),
        ("device", run.device),
        ("torch", run.torch),
        ("Python", run.python),
        ("started", run.started),
        ("steps", step_note(diagnosis.timing)),
    )
    return [(label, printable(value)) for label, value in facts if value]


def group_by_reason(skipped: Mapping[str, str]) -> list[tuple[str, Sequence[str]]]:
    """Rules that could not look, together where the reason is the same: ``[(reason, [rule, ...]), ...]``."""
    groups: dict[str, list[str]] = {}
    for rule, reason in skipped.items():
        groups.setdefault(printable(reason), []).append(printable(rule))
    return [(reason, sorted(rules)) for reason, rules in groups.items()]


_MOST_WORKERS = 8


def worker_lines(diagnosis: Diagnosis) -> list[str]:
    """What each worker of a DataLoader did with its time and what it holds, the first few."""
    several = len({worker.loader for worker in diagnosis.workers}) > 1
    lines = [_worker_line(worker, several) for worker in diagnosis.workers[:_MOST_WORKERS]]
    left = len(diagnosis.workers) - len(lines)
    return [*lines, f"and {format_count(left, 'worker')} more"] if left else lines


def _worker_line(worker: WorkerTimes, several: bool) -> str:
    name = f"worker {worker.worker}{f' of loader {worker.loader}' if several else ''}"
    parts = (("fetching", worker.fetch), ("collating", worker.collate), ("waiting", worker.waiting))
    times = ", ".join(f"{label} {format_share(share)}" for label, share in parts)
    memory = ""
    if worker.private_bytes is not None:
        grown = worker.private_growth_bytes or 0
        more = f", {format_bytes(grown)} more than at first" if grown > 0 else ""
        memory = f"; {format_bytes(worker.private_bytes)} of its own{more}"
    batches = format_count(worker.batches, "batch").replace("batchs", "batches")
    each = f"{format_time(worker.cpu_ns_per_batch)} of CPU time and handed over in "
    return f"{name}: {times} in {batches}, each {each}{format_time(worker.hand_over_ns_per_batch)}{memory}"
