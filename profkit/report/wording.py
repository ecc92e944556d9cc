"""The wording of a diagnosis: sentences that several report formats share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from profkit.core.printing import visible
from profkit.core.units import format_bytes, format_count, format_share, format_time
from profkit.diagnosis.activities import describe_doing, describe_judgement, name_place
from profkit.diagnosis.bounding import explain_bound
from profkit.diagnosis.verdict import conclude, step_figure
from profkit.findings.values import (
    MEASURED_EVIDENCE,
    BesideCommunication,
    DeviceMemory,
    Diagnosis,
    ExchangeRate,
    Finding,
    Kind,
    Location,
    MemoryPeak,
    Severity,
    Timing,
    VerdictKind,
    WholeRun,
    WorkerTimes,
    full_after,
    grows,
    left_beyond,
    notable,
)

MAX_MORE_PLACES = 3
"""Further places of a finding, in text and Markdown."""
_MEASURED = "; measured on this machine"
_SLOWS_FROM = 0.1
"""The share of the step that hides communication. NCCL and DeepEP run on up to 24 of an H100's 132 multiprocessors
(``NCCL_MAX_CTAS``, ``Buffer.set_num_sms``), so what is computed beside them is slower by up to a fifth: less than this
makes 2 % of the step at most."""
_MOST_RATES = 2
"""Kinds of collectives told of: further ones take less time."""
_SLOWED_FROM = 1.05
"""Times as long: what is less is no difference that a median shows."""
_MAY_SLOW = ", which may be slower for it: both share the device's processors and memory"


def printable(text: str) -> str:
    """``text`` on one line, with what could control a terminal, hide text or command a CI system shown as escapes."""
    return visible(" ".join(text.split()))


def printable_lines(text: str) -> list[str]:
    """Like `printable`, but keeps line breaks and the indentation of code."""
    lines = text.expandtabs(4).strip("\n").splitlines()
    return [visible(line.rstrip()) for line in lines]


_EXPECTATION = re.compile(r"\s*# expect: [\w, -]+$")
"""A scenario's note to its own tests, which is nothing to the reader of a report."""


def source_text(line: str) -> str:
    """A line of the program as it is shown."""
    return _EXPECTATION.sub("", line)


OPPORTUNITIES_NOTE = "An opportunity also changes numerics or structure."


def opportunities_note(findings: Sequence[Finding]) -> str:
    """How opportunities differ from faults; empty if there are none."""
    return OPPORTUNITIES_NOTE if any(one.kind is Kind.OPPORTUNITY for one in findings) else ""


def minor_findings(diagnosis: Diagnosis) -> list[Finding]:
    """The findings too small to act on; none of a recording that nobody can judge."""
    if (diagnosis.verdict or conclude(diagnosis)).kind is VerdictKind.CANNOT_JUDGE:
        return []
    return [f for f in diagnosis.findings if f.severity is Severity.INFO]


def verdict(diagnosis: Diagnosis) -> str:
    """The diagnosis in one line."""
    return printable((diagnosis.verdict or conclude(diagnosis)).text)


def headline(diagnosis: Diagnosis) -> tuple[str, str]:
    """What comes first, and the rest as sentences; the rest may be empty. If the verdict begins with what was found,
    the change and its worth come first; else what the verdict begins with."""
    first, *others = verdict(diagnosis).split("; ")
    if (worth := _worth(diagnosis)) and _BEGINS_WITH_FINDINGS.match(first):
        first, others = worth, [first, *others]
    return first, " ".join(f"{one[:1].upper()}{one[1:]}." for one in others)


_BEGINS_WITH_FINDINGS = re.compile(r"\d+ faults? cost|An opportunity would|No fault, but ")


def _worth(diagnosis: Diagnosis) -> str:
    """``input-bound at train.py:66: 59.9 ms a step could be 6.00 ms``; empty if the first finding has no price in
    time."""
    found, timing = notable(diagnosis.findings), diagnosis.timing
    step_ns = timing.unprofiled_step_time_ns or timing.step_time_ns
    first = found[0] if found else None
    if first is None or first.saving is None or not step_ns:
        return ""
    saving = first.saving
    if saving.of_part or saving.run_ns or not 0 < saving.fraction < 1:
        return ""
    where = f" at {short_place(first.location)}" if first.location else ""
    before, after = format_time(step_ns), format_time(step_ns * (1 - saving.fraction))
    return f"{printable(first.rule)}{where}: a step of {before} could take {after}"


def to_do(diagnosis: Diagnosis) -> str:
    """The first sentence of the fix of the fault that the headline names; empty if it names none."""
    first = headline(diagnosis)[0]
    if first != _worth(diagnosis) and not _NAMES_A_LEAK.match(first):
        return ""
    first_line = notable(diagnosis.findings)[0].fix.strip().partition("\n")[0]
    return _END_OF_SENTENCE.split(printable(first_line), maxsplit=1)[0].rstrip(":")


_NAMES_A_LEAK = re.compile("1 fault makes memory grow")
_END_OF_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z`(])")


def price_label(finding: Finding) -> str:
    """What to call the price: ``cost`` of a fault, ``gain`` of an opportunity."""
    return "cost" if finding.kind is Kind.FAULT else "gain"


def summary(finding: Finding) -> str:
    """Message, price and fix as one paragraph."""
    fix = printable(finding.fix)
    price = f"{price_label(finding).capitalize()}: {cost(finding)}."
    return " ".join([printable(finding.message), price, *([f"Fix: {fix}"] if fix else [])])


def cost(finding: Finding) -> str:
    """What a fault costs or an opportunity gains, to follow `price_label`."""
    saving = finding.saving
    if saving is None:
        return "unknown: this recording does not show what a fix would save"
    parts = []
    if saving.time_ns > 0:
        how = f"{_likely_range(saving.low, saving.high)}{_MEASURED if is_measured(finding) else ''}"
        share = f"{format_share(saving.fraction)} of the {saving.whole}{how}"
        each = "" if saving.of_part or saving.run_ns else " per step"
        parts.append(f"{format_time(saving.time_ns)}{each} ({share})")
        left = left_beyond(finding)
        parts += [] if left is None else [f"{format_share(left)} if those above are fixed too"]
    if grows(finding):
        until = f", {soon} at this pace" if (soon := full_after(finding)) else ""
        parts.append(f"memory grows by {format_bytes(saving.bytes)} per step{until}")
    elif saving.bytes > 0:
        parts.append(f"{format_bytes(saving.bytes)} of memory would be freed")
    if not parts and is_measured(finding):
        return f"no time to gain{_MEASURED}"
    return "; ".join(parts) or "no time to gain in this recording: it is hidden behind the rest of the step"


def evidence(finding: Finding) -> list[tuple[str, str]]:
    """The figures behind a finding: ``waited_ns_per_step`` of 69_443_301 becomes ``waited per step``, ``69.4 ms``."""
    return [_figure(name, value) for name, value in finding.evidence.items()]


def _figure(name: str, value: float | str) -> tuple[str, str]:
    words = name.split("_")
    label = printable(" ".join(word for word in words if word != "ns"))
    if isinstance(value, str):
        return label, printable(value)
    if "ns" in words:
        return label, format_time(value)
    if "bytes" in words:
        return label, format_bytes(value)
    if "share" in words or "fraction" in words:
        return label, format_share(value)
    return label, f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def is_measured(finding: Finding) -> bool:
    """Whether the saving comes from an experiment rather than a model."""
    return MEASURED_EVIDENCE in finding.evidence


def _likely_range(low: float, high: float) -> str:
    low_text, high_text = format_share(low), format_share(high)
    return "" if low_text == high_text or high < 0.001 else f"; likely {low_text.removesuffix(' %')} to {high_text}"


def change_lines(finding: Finding) -> list[str]:
    """The fix as a diff, if it is one line."""
    change = finding.change
    if change is None:
        return []
    marked = (("-", change.before), ("+", change.after))
    shown = ((mark, " ".join(printable_lines(source_text(text))).strip()) for mark, text in marked if text.strip())
    return [f"{mark} {text}" for mark, text in shown]


def place(location: Location) -> str:
    """``train.py:31 in step``; says if only the function is known."""
    file = printable(location.file)
    function = f" in {printable(location.function)}" if location.function else ""
    if location.line <= 0:
        return f"{file}{function}"
    if location.precision == "def":
        return f"{file}{function} (defined at line {location.line}; the calling line was not recorded)"
    return f"{file}:{location.line}{function}"


def short_place(location: Location) -> str:
    """``train.py:31``."""
    return printable(location.short)


def step_note(timing: Timing) -> str:
    """How the steps were found and timed, as a sentence; empty if there are none."""
    if not timing.steps:
        return ""
    parts = [f"{step_figure(timing)} (median)" if timing.step_time_ns is not None else step_figure(timing)]
    if timing.measured_steps is not None:
        first, last = timing.measured_steps
        numbers = f"numbers {first} to {last}" if last > first else f"number {first}"
        parts.append(f"{numbers} of the program (later steps were not examined)")
    if timing.steps_from:
        parts.append(f"found from {printable(timing.steps_from)}")
    return ", ".join([*parts, *_unprofiled(timing)])


def _unprofiled(timing: Timing) -> Iterator[str]:
    """What the step takes without recording, and how that is known."""
    unprofiled_ns, overhead = timing.unprofiled_step_time_ns, timing.profiler_overhead_fraction
    limits = _limits(timing.unprofiled_least_time_ns, timing.unprofiled_most_time_ns)
    if timing.unprofiled_from == "estimated" and unprofiled_ns is not None:
        slows = f": recording slows the host by {format_share(overhead)}" if overhead is not None else ""
        but = f", {limits}" if limits else ""
        yield f"{format_time(unprofiled_ns)} without recording (estimated{but}{slows})"
        return
    if (held_up_ns := timing.held_up_step_time_ns) is not None:
        yield f"{format_time(held_up_ns)} without the profiler: something else held those up, or they did more"
        return
    if unprofiled_ns is not None:
        but = f" ({limits}: the idle profiler may have slowed launches)" if limits else ""
        yield f"{format_time(unprofiled_ns)} without the profiler{but}"
    if overhead is not None and overhead > 0:
        yield f"recording added {format_share(overhead)}"


def _limits(least_ns: int | None, most_ns: int | None) -> str:
    """How short and how long a time may be, empty if neither is known."""
    limits = (("at least", least_ns), ("at most", most_ns))
    return ", ".join(f"{word} {format_time(ns)}" for word, ns in limits if ns is not None)


def bound_note(timing: Timing) -> str:
    """What the step waits for, by the rows of the table below it, as a sentence; empty without a device."""
    return printable(explain_bound(timing))


def communication_note(timing: Timing) -> str:
    """How long the devices exchange data and what hides it, as a sentence; empty if they do not."""
    exchanged_ns, hidden = timing.communication_ns, timing.communication_hidden
    if exchanged_ns is None or hidden is None:
        return ""
    share = format_share(hidden) if hidden else "none"
    found = f"Communication takes {format_time(exchanged_ns)} a step, {share} of it hidden"
    is_much = timing.step_time_ns is not None and hidden * exchanged_ns >= _SLOWS_FROM * timing.step_time_ns
    rates = "".join(f". {_rate_note(one)}" for one in timing.exchange_rates[:_MOST_RATES])
    measured = _slowed_note(timing.beside_communication)
    return f"{found} behind computing{measured or (_MAY_SLOW if is_much else '')}{rates}"


def _slowed_note(measured: BesideCommunication | None) -> str:
    """What collectives do to the computing beside them; empty if that was not compared."""
    if measured is None:
        return ""
    if measured.ratio < _SLOWED_FROM:
        return f". {measured.beside:,} kernels take no longer beside it than {measured.alone:,} of their kind alone"
    return (
        f". {measured.beside:,} kernels take {measured.ratio:.2f} times as long beside it as {measured.alone:,} of "
        f"their kind alone, {format_time(measured.time_ns)} a step more. Both share processors and memory"
    )


def _rate_note(one: ExchangeRate) -> str:
    name, each = printable(one.operation).replace("_", "-"), format_time(one.each_ns)
    usual, best = format_bytes(one.bytes_per_s), format_bytes(one.best_bytes_per_s)
    return (
        f"{name[:1].upper()}{name[1:]} of {format_bytes(one.size_bytes)} among {one.ranks} ranks takes {each}, waits "
        f"for other ranks included: {usual} a second on the bus, {best} at best{_link_note(one)}"
    )


def _link_note(one: ExchangeRate) -> str:
    """How far that is below what the links carry, and why it may be; empty if it is not."""
    if not one.link_bytes_per_s:
        return ""
    saved = f": at three quarters, a step takes up to {format_time(one.could_save_ns)} less"
    return (
        f". Links in one machine carry {format_bytes(one.link_bytes_per_s)} a second between such devices"
        f"{saved if one.could_save_ns else ''}. Either the data goes another way, or each call waits for other ranks: "
        "`nvidia-smi topo -m` and `NCCL_DEBUG=INFO` tell"
    )


def run_facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """What is known about the run, as labels and values."""
    run = diagnosis.run
    facts = (
        ("command", " ".join(run.command)),
        ("device", run.device),
        ("torch", run.torch),
        ("Python", run.python),
        ("started", run.started),
        ("steps", step_note(diagnosis.timing) or _watched_steps(diagnosis.whole_run)),
        *(("memory", peak_note(peak)) for peak in diagnosis.peaks),
    )
    return [(label, printable(value)) for label, value in facts if value]


def _watched_steps(whole: WholeRun | None) -> str:
    """How many steps a run had that was only watched, and what they took: ``600 steps of about 2.30 ms``.
    Empty if that is not known."""
    if whole is None or not whole.steps:
        return ""
    in_order = sorted(whole.steps, key=lambda part: part.typical_ns)
    counts = list(accumulate(part.steps for part in in_order))
    middle = next(part for part, count in zip(in_order, counts, strict=True) if 2 * count >= counts[-1])
    return f"{format_count(counts[-1], 'step')} of about {format_time(middle.typical_ns)}"


def run_subject(diagnosis: Diagnosis) -> str:
    """What was run, on what and when, on one line, for a page that has left its folder."""
    run = diagnosis.run
    return printable(", ".join(part for part in (" ".join(run.command), run.device, run.started) if part))


def peak_note(peak: MemoryPeak) -> str:
    """How full memory was, as a sentence: ``GPU 0: at most 1.98 GB of 85 GB in tensors, 2.2 GB with what PyTorch
    keeps for later ones``."""
    figures = [
        (peak.tensor_bytes, "in tensors"),
        (peak.reserved_bytes, "with what PyTorch keeps for later ones" if peak.tensor_bytes else "held by PyTorch"),
        (peak.seen_bytes, "in all" if peak.reserved_bytes else "in use"),
    ]
    of = f" of {format_bytes(peak.total_bytes)}" if peak.total_bytes else ""
    parts = [f"{format_bytes(size)}%s {how}" for size, how in figures if size]
    return f"{peak.where}: at most {', '.join(part % ('' if at else of) for at, part in enumerate(parts))}"


def group_by_reason(skipped: Mapping[str, str]) -> list[tuple[str, Sequence[str]]]:
    """Rules that could not look, grouped by reason: ``[(reason, [rule, ...]), ...]``."""
    groups: dict[str, list[str]] = {}
    for rule, reason in skipped.items():
        groups.setdefault(printable(reason), []).append(printable(rule))
    return [(reason, sorted(rules)) for reason, rules in groups.items()]


def ignored_note(diagnosis: Diagnosis) -> str:
    """The findings that comments in the code leave out; empty if none."""
    if not diagnosis.ignored:
        return ""
    named = ", ".join(f"{printable(rule)} ({count})" for rule, count in sorted(diagnosis.ignored.items()))
    return f"ignored because of a comment on the line (profkit: ignore): {named}"


_MOST_NAMED = 4
"""Rules named for one reason; if there are more, only the first two. diagnosis.json names all."""


def skipped_rules(rules: Sequence[str], show: Callable[[str], str] = str) -> str:
    """``launch-bound, input-bound``, or ``21 rules, such as …``; ``show`` formats each name."""
    if len(rules) <= _MOST_NAMED:
        return ", ".join(map(show, rules))
    return f"{format_count(len(rules), 'rule')}, such as {', '.join(map(show, rules[:2]))}"


_REMEDY = re.compile(r"\(([^()]*?(\w+=True|under profkit|--measure|--card NAME|call step\(\))[^()]*)\)")
"""What a reason says to do next time: a flag of the profiler, or another way to run the program."""

_NEXT_TIME = {
    "under profkit": "running the program under profkit",
    "call step()": "calling step() after each step",
    "--card NAME": "profkit diagnose --card NAME, which names the device,",
}
"""Remedies in words that continue a sentence."""


def skipped_lines(
    skipped: Mapping[str, str],
    verbose: bool = False,
    show: Callable[[str], str] = str,
    escape: Callable[[str], str] = str,
) -> list[str]:
    """The rules that could not look: how many, and what would let more of them look next time. ``verbose`` says the
    reason for each; a single reason takes one line anyway. ``show`` formats names, ``escape`` all other text."""
    groups = group_by_reason(skipped)
    if verbose or len(groups) <= 1:
        return [f"{escape(reason)}: {skipped_rules(rules, show)}" for reason, rules in groups]
    remedies: dict[str, list[str]] = {}
    for reason, rules in groups:
        if found := _REMEDY.search(reason):
            remedies.setdefault(_NEXT_TIME.get(found[2], found[2]), []).extend(rules)
    more = sorted(remedies.items(), key=lambda item: (-len(item[1]), item[0]))
    count = format_count(len(skipped), "rule")
    return [
        f"{count} could not look, for {len(groups)} reasons ({escape('profkit diagnose --verbose')} tells them)",
        *(f"next time, {escape(remedy)} lets {_looking(sorted(rules), show)}" for remedy, rules in more),
    ]


def _looking(rules: Sequence[str], show: Callable[[str], str]) -> str:
    """``launch-bound and input-bound look``, or ``21 rules look, such as …``."""
    count, such_as, few = skipped_rules(rules, show).partition(", such as ")
    named = (few or count).rpartition(", ")
    listed = f"{named[0]} and {named[2]}" if named[0] else named[2]
    return f"{count} look{such_as}{listed}" if few else f"{listed} look"


def hot_lines(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """The hottest lines: share, place and source. None if more is known of the places that take most of the step."""
    if any(one.location is not None for one in diagnosis.costliest):
        return []
    return [
        (format_share(spot.fraction), short_place(spot.location), printable(source_text(spot.location.source)))
        for spot in diagnosis.hottest
        if spot.location is not None and not spot.operator
    ]


def hot_operators(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """The operators that take the most time: share and name, and for an optimizer's step its line."""
    return [
        (
            format_share(spot.fraction),
            printable(spot.operator) + (f" at {short_place(spot.location)}" if spot.location else ""),
        )
        for spot in diagnosis.hottest
        if spot.operator
    ]


class KernelRow(Struct, frozen=True):
    """A family of kernels: its share of all kernels' time, its name, what a step has of it, and the kernel that takes
    most of that."""

    share: str
    family: str
    in_a_step: str
    most: str


def kernel_rows(diagnosis: Diagnosis) -> list[KernelRow]:
    """The families of kernels that take most of the kernels' time."""
    return [
        KernelRow(
            format_share(one.fraction),
            one.family,
            f"{format_time(one.step_ns)} a step in {_kernels(one.count)}",
            f"{'all' if one.name_fraction >= one.fraction else 'most'} in {printable(one.name[:_MOST_KERNEL_NAME])}"
            + (f", {format_share(one.name_fraction)}" if one.name_fraction < one.fraction else ""),
        )
        for one in diagnosis.kernels[:_MOST_FAMILIES]
        if one.fraction >= _LEAST_FAMILY
    ]


def _kernels(count: float) -> str:
    """``110 kernels``; fewer than one a step are told by the steps between them, up to a million."""
    return (
        format_count(round(count), "kernel") if count >= 1 else f"a kernel every {round(1 / max(count, 1e-6)):,} steps"
    )


KERNELS = "What the device's kernels do, by share of their time"
_MOST_FAMILIES = 8
_LEAST_FAMILY = 0.01
"""Of the kernels' time: what takes less is no place to begin."""
_MOST_KERNEL_NAME = 120
"""Characters. Names of compiled kernels list all operators that they fuse."""


class PlaceRow(Struct, frozen=True):
    """One of the places that take most of the step: its share, its name, the most to gain there, the text of its line,
    and what it does, a sentence each."""

    share: str
    where: str
    bound: str
    source: str
    does: tuple[str, ...]


def costly_places(diagnosis: Diagnosis) -> list[PlaceRow]:
    """The places that take most of the step."""
    return [
        PlaceRow(
            format_share(place.fraction),
            printable(name_place(place)),
            f"at most {format_share(place.bound)} to gain",
            printable(source_text(place.location.source)) if place.location is not None else "",
            (
                *(f"{format_share(doing.fraction)} {printable(describe_doing(doing))}" for doing in place.does),
                printable(describe_judgement(place)),
            ),
        )
        for place in diagnosis.costliest
    ]


COSTLY_PLACES = "What is left: the places that take most of the step"
COSTLY_NOTE = (
    "Each with its part of the backward pass. At most to gain: how much shorter the step would be without the place."
)
HOT_LINES = "The hottest lines, from the step recorded line by line"
HOT_OPERATORS = "The operators that take the most time"
MOST_WORKERS = 8
"""Most loaders have no more, and their workers are alike. The page folds the others away."""


def worker_lines(diagnosis: Diagnosis) -> list[str]:
    """How each of the first few DataLoader workers spent its time, and the memory it holds."""
    several = len({worker.loader for worker in diagnosis.workers}) > 1
    lines = [_worker_line(worker, several) for worker in diagnosis.workers[:MOST_WORKERS]]
    left = len(diagnosis.workers) - len(lines)
    return [*lines, f"and {format_count(left, 'more worker')}"] if left else lines


def _worker_line(worker: WorkerTimes, several: bool) -> str:
    name = f"worker {worker.worker}{f' of loader {worker.loader}' if several else ''}"
    parts = (("fetching", worker.fetch), ("collating", worker.collate), ("waiting", worker.waiting))
    times = ", ".join(f"{label} {format_share(share)}" for label, share in parts)
    memory = ""
    if worker.private_bytes is not None:
        grown = worker.private_growth_bytes or 0
        more = f", {format_bytes(grown)} more than at the start" if grown > 0 else ""
        memory = f"; {format_bytes(worker.private_bytes)} of its own{more}"
    batches = format_count(worker.batches, "batch", "batches")
    each = f"{format_time(worker.cpu_ns_per_batch)} of CPU time and handed over in "
    return f"{name}: {times} in {batches}, each {each}{format_time(worker.hand_over_ns_per_batch)}{memory}"


def memory_title(diagnosis: Diagnosis, memory: DeviceMemory) -> str:
    """The title of a device's section."""
    which = f" of GPU {memory.device}" if len(diagnosis.memory) > 1 else ""
    return f"What the memory{which} holds{' at its peak' if memory.history_entries else ''}"


def memory_figures(memory: DeviceMemory) -> list[tuple[str, str]]:
    """The allocator's account of a device, as labels and values."""
    when = ""
    if memory.peak_ns is not None and memory.history_ns:
        when = f", {format_time(memory.peak_ns)} into a history of {format_time(memory.history_ns)}"
    at_peak = f"{format_bytes(memory.peak_bytes)}{when}; {format_bytes(memory.reserved_peak_bytes)} reserved at most"
    now = f"{format_bytes(memory.allocated_bytes)} held of {format_bytes(memory.reserved_bytes)} reserved"
    free = f"{format_bytes(memory.cached_bytes)} in whole segments, ready for any request or the driver"
    return [
        *([("peak", at_peak)] if memory.history_entries else []),
        ("now", now),
        ("free", f"{free}; {format_bytes(memory.split_bytes)} in gaps inside used ones"),
    ]


def memory_parts(memory: DeviceMemory) -> list[tuple[str, str, str, float]]:
    """What the peak consists of: label, bytes, share, and the share as a number."""
    return [
        (printable(part.label), format_bytes(part.bytes), format_share(part.fraction), part.fraction)
        for part in memory.parts
    ]


def memory_lines(memory: DeviceMemory) -> list[tuple[str, str, str]]:
    """The lines that allocated most of the peak: bytes, place with the number of blocks, and source."""
    rows = []
    for line in memory.lines:
        where = short_place(line.location) if line.location else printable(line.why) or "no line recorded"
        source = printable(source_text(line.location.source)) if line.location else ""
        inside = f"; {format_bytes(line.inside_bytes)} at {_in_package(line.inside)}" if line.inside else ""
        rows.append((format_bytes(line.bytes), f"{where}, {format_count(line.count, 'block')}{inside}", source))
    return rows


def _in_package(location: Location) -> str:
    """``transformers/activations.py:66``: below the folder of installed packages."""
    path = re.split(r"-packages/", location.file.replace("\\", "/"))[-1]
    return printable(f"{path}:{location.line}")


MEMORY_LINES = "The lines that allocated it"
