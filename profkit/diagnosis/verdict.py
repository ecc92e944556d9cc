"""The verdict, a report's first line: what was found, else where the time goes, else why nothing can be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.core.units import format_bytes, format_count, format_share, format_time, pick_form
from profkit.derive.launch.chance import LEAST_STEPS
from profkit.diagnosis.activities import describe_doing, name_place
from profkit.diagnosis.bounding import describe_bound, has_device
from profkit.findings.larger import larger_below
from profkit.findings.values import (
    ASKED_EVIDENCE,
    GOOD_RATE,
    HELD_EVIDENCE,
    HELD_FOR_EVIDENCE,
    HIGH_FROM,
    SHARE_OF_TIME,
    Activity,
    CostlyPlace,
    Diagnosis,
    Finding,
    Kind,
    LaunchSummary,
    Saving,
    Severity,
    TimeShare,
    Timing,
    Verdict,
    VerdictKind,
    faults,
    full_after,
    grows,
    left_beyond,
    opportunities,
    rank,
    unexplained,
)
from profkit.patterns.time.shares import HOST_COMPUTING
from profkit.patterns.whole_run.phases import BETWEEN, OUTSIDE_STEPS
from profkit.run.directory import FAILED
from profkit.trace.statistics import median

_MOSTLY_COMPUTING_SHARE = 0.9
"""From this share on, the verdict says that the step computes, and nothing more."""
_WORTH_NAMING = 0.01
"""Of the step: without a place with less to gain, such as a wait for work that runs all the same, nothing changes."""
_HIDDEN = 0.5
"""Of a place's time: if less can be gained without it, it mostly runs beside other work, and another is named."""
_MOSTLY_REPLAYED = 0.5
"""Of a server's kernels."""
_MUCH_WAITING = 0.1
"""As much as a fault of high severity costs."""
NO_STEPS = "no steps were found: the whole recording is treated as one step"
NO_STEPS_BUT_LOOP = "no steps were found: the loop in which the recording ended is treated as one step"
"""An obstacle that leaves what the device did to be told."""
BEGINNING = "no step was recorded, only the program's beginning: shares are those of that part"
"""An obstacle that is told before whatever was found: nothing of it comes again in each step."""
ROUNDS_ONLY = "no whole step was recorded, only rounds of a loop: shares are those of that part"
"""The same of the loop in which the recording ended. It may be a part of a step."""
CUT_OFF = "the file is cut off, and what is lost may be from any part of the recording"
"""An obstacle that is told before whatever was found: all figures are those of a part."""
_UPDATE = "Optimizer.step#"
"""PyTorch's name for an optimizer's step, before the class."""


def conclude(diagnosis: Diagnosis, obstacles: Sequence[str] = (), beginning: str = "") -> Verdict:
    """The verdict on a diagnosis. ``obstacles`` are reasons why finding nothing would not mean that the program is
    fine. Findings are named all the same, with the first obstacle as a caveat. ``beginning`` is what most of the
    recording was spent on besides the steps; it comes first. So does what the judged steps do not stand for, if that is
    most of the time."""
    return _after(beginning, _after(_elsewhere(diagnosis), _conclude(diagnosis, obstacles)))


def with_ranks(verdict: Verdict, launch: LaunchSummary | None) -> Verdict:
    """The verdict on the rank that is shown, after ``Ranks wait 24 % of a step for others, longest for rank 7``, if
    that is the news."""
    if launch is None or not launch.step_time_ns or len(launch.ranks) < 2:
        return verdict
    share = median([one.waited_ns for one in launch.ranks]) / launch.step_time_ns
    if share < _MUCH_WAITING:
        return verdict
    worst = max(launch.ranks, key=lambda one: one.caused_ns)
    is_known = worst.caused_ns and launch.steps >= LEAST_STEPS  # in fewer, it may be chance
    longest = f", longest for rank {worst.rank}" if is_known else ""
    return _after(f"Ranks wait {format_share(share)} of a step for others{longest}", verdict)


def _after(first: str, verdict: Verdict) -> Verdict:
    return replace(verdict, text=f"{first}; {_lowered(verdict.text)}") if first else verdict


def _conclude(diagnosis: Diagnosis, obstacles: Sequence[str]) -> Verdict:
    mend, chances = faults(diagnosis.findings), opportunities(diagnosis.findings)
    failure, ended = _capitalised(diagnosis.failure or ""), "" if obstacles else _capitalised(_end_of(diagnosis))
    if mend or chances:
        failed = "" if mend and _ran_out(rank(mend)[0]) else failure or ended  # the finding says more of the same
        first = f"{failed}; " if failed else ""
        found = _found(diagnosis, mend, chances, bool(obstacles))
        return Verdict(VerdictKind.FOUND, f"{first}{_doubted(found, obstacles)}")
    if failure:
        return Verdict(VerdictKind.CANNOT_JUDGE, failure)
    if not obstacles and not diagnosis.timing.steps and (beside := _beside_steps(diagnosis)):
        return Verdict(VerdictKind.NOTHING_FOUND, f"No fault found in {beside}")
    if not obstacles and not diagnosis.timing.steps:
        obstacles = (*diagnosis.health, "the recording holds no steps to measure")
    if obstacles:
        return Verdict(VerdictKind.CANNOT_JUDGE, _cannot_judge(diagnosis.timing, obstacles[0]))
    unseen = len(diagnosis.skipped)
    limit = f"; {format_count(unseen, 'rule')} could not look" if unseen else ""
    what = _where_time_goes(diagnosis)
    nothing = _capitalised(_nothing(diagnosis, "found"))
    nothing = f"{ended}; {_nothing(diagnosis, 'found')} until then" if ended else nothing
    return Verdict(VerdictKind.NOTHING_FOUND, f"{nothing}{_hardly_compared(diagnosis.launch)}; {what}{limit}")


def _doubted(found: str, obstacles: Sequence[str]) -> str:
    """What was found, with the first obstacle as a caveat; what makes all figures those of a part comes first."""
    if obstacles and obstacles[0] in (BEGINNING, ROUNDS_ONLY, CUT_OFF):
        return f"{_capitalised(obstacles[0])}; {_lowered(found)}"
    return f"{found}; doubtful, as {obstacles[0]}" if obstacles else found


def _beside_steps(diagnosis: Diagnosis) -> str:
    """What was looked at if no step was recorded: a memory snapshot, or the run as a whole; empty if neither."""
    if diagnosis.memory:
        return f"the memory; {_memory(diagnosis)}"
    return "the account of the run; its steps were not recorded" if diagnosis.whole_run is not None else ""


def _nothing(diagnosis: Diagnosis, found: str) -> str:
    """``no fault found``, if whatever takes much of the step is explained; else only that no fault is known. Neither is
    said of the program if most of its time lies elsewhere."""
    if diagnosis.elsewhere is not None:
        return "no fault is known in the judged steps"
    return "no known fault" if unexplained(diagnosis.costliest) else f"no fault {found}"


def _between_cycles(diagnosis: Diagnosis) -> str:
    """``; 34 % of the run lies outside the steps, most of it evaluation at train.py:40``: what no recorded step shows.
    Empty if it is less than a tenth, or if the run was not watched."""
    phases = diagnosis.whole_run.phases if diagnosis.whole_run is not None else ()
    outside = [phase for phase in phases if phase.label in OUTSIDE_STEPS and not phase.in_steps]
    share = sum(phase.fraction for phase in outside)
    if share < HIGH_FROM or diagnosis.elsewhere is not None:
        return ""
    most = max(outside, key=lambda phase: phase.time_ns)
    where = f" at {most.lines[0].location.short}" if most.lines else ""
    what = "" if most.label == BETWEEN else f" {most.label}"
    return f"; {format_share(share)} of the run lies between the steps, most of it{what}{where}"


def _elsewhere(diagnosis: Diagnosis) -> str:
    """``95 % of the time lies outside the judged steps, in one step of 4, most of it work without gradients at
    train.py:19``; empty if most lies in them."""
    beside = diagnosis.elsewhere
    if beside is None:
        return ""
    if beside.of_run:
        return (
            f"{format_share(beside.fraction)} of the run passes in a loop at {beside.at}, of which no step was "
            "recorded (run alone, `with profkit.profile(...)` around it records some)"
        )
    if beside.of_recording:
        return f"{format_share(beside.fraction)} of the recording lies outside the judged steps"
    often = f", in one step of {beside.every}" if beside.every else ", in longer steps"
    what = f" {beside.what}" if beside.what else ""
    where = f", most of it{what} at {beside.at}" if beside.at else ""
    return f"{format_share(beside.fraction)} of the time lies outside the judged steps{often}{where}"


def _telling(place: CostlyPlace) -> str:
    """What the place does most; if it is not explained, the most of what keeps it from that."""
    needed = [one for one in place.does if one.activity is Activity.PRODUCTS and (one.of_peak or 0.0) >= GOOD_RATE]
    others = [] if place.is_explained else [one for one in place.does if one not in needed]
    doing = (others or place.does)[0]
    share = "" if doing is place.does[0] else f"among it {format_share(doing.fraction)}: "
    return f"{share}{describe_doing(doing, is_brief=True)}"


def _where_time_goes(diagnosis: Diagnosis) -> str:
    """What bounds a step with a device, then its costliest place; without a device that place first."""
    largest = f"{_largest_part(diagnosis.timing)}{_optimizer(diagnosis)}{_hottest_line(diagnosis)}"
    serving, place = _serving(diagnosis), "" if _is_replayed(diagnosis) else _costliest(diagnosis)
    parts = [largest, serving, place] if has_device(diagnosis.timing) else [place, serving, largest]
    return f"{'; '.join(part for part in parts if part)}{_between_cycles(diagnosis)}"


def _is_replayed(diagnosis: Diagnosis) -> bool:
    """Whether graphs launch most of a server's kernels: a place only tells where that happens."""
    return bool(diagnosis.serving) and diagnosis.serving[0].replayed_fraction > _MOSTLY_REPLAYED


def _serving(diagnosis: Diagnosis) -> str:
    """``vLLM generates 2,979 tokens a second, 71 % of its kernels' time in layers of experts``; empty for any other
    program."""
    if not diagnosis.serving:
        return ""
    one = diagnosis.serving[0]
    mostly = one.families[0] if one.families else None
    where = f", {format_share(mostly.fraction)} of its kernels' time in {mostly.family}" if mostly else ""
    if one.kind == "prefill":
        rate = one.tokens / one.step_ns * 1e9 if one.step_ns else 0.0
        return f"{one.engine} reads {rate:,.0f} tokens of prompts a second{where}" if rate else ""
    if not one.tokens_per_s:
        return ""
    times = f", {one.step_ns / one.floor_ns:,.1f} times as long as reading weights and cache" if one.floor_ns else ""
    who = one.engine or "the loop that generates text"
    does = f"{who} {'generates' if one.engine else 'adds'} {one.tokens_per_s:,.0f} tokens a second"
    beside = " beside reading prompts" if one.kind == "mixed" else ""
    return f"{does}{beside}{times}{where}"


def _costliest(diagnosis: Diagnosis) -> str:
    """``62 % of the step is at model.py:41 (matrix products, …)``: where to begin; empty if places are not known, or if
    most is at none: the table's largest part then says what it is."""
    known = [place for place in diagnosis.costliest if place.bound >= _WORTH_NAMING or not has_device(diagnosis.timing)]
    open_to_gain = [place for place in known if place.bound >= _HIDDEN * place.fraction]
    places = unexplained(open_to_gain) or unexplained(known) or known[:1]
    if not places or (places[0].location is None and not places[0].name):
        return ""
    place = places[0]
    does = f" ({_telling(place)})" if place.does else ""
    return f"{format_share(place.fraction)} of the step is at {name_place(place)}{does}"


def _cannot_judge(timing: Timing, obstacle: str) -> str:
    """Why no verdict is given, and what the recording shows all the same. Where its time goes comes first if only the
    steps are missing."""
    bound = describe_bound(timing)
    if not bound:
        return f"Cannot judge: {obstacle}"
    return (
        f"{_capitalised(bound)}; {obstacle}"
        if obstacle in (NO_STEPS, NO_STEPS_BUT_LOOP)
        else f"Cannot judge: {obstacle}; {bound}"
    )


def _hardly_compared(launch: LaunchSummary | None) -> str:
    """`` in rank 0, and 2 steps in common are too few to compare 4 ranks``; empty if there are enough."""
    if launch is None or len(launch.ranks) <= 1 or launch.steps >= LEAST_STEPS:
        return ""
    where = "" if launch.shown_rank is None else f" in rank {launch.shown_rank}"
    steps = format_count(launch.steps, "step") if launch.steps else "no step"
    common = f"{steps} in common {pick_form(launch.steps or 1, 'is', 'are')}"
    return f"{where}, and {common} too few to compare {len(launch.ranks)} ranks"


def _end_of(diagnosis: Diagnosis) -> str:
    """``the program failed: ValueError (at train.py:12)``; empty if it did not."""
    return next((note for note in diagnosis.health if note.startswith(FAILED)), "")


def _lowered(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _capitalised(sentence: str) -> str:
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _found(diagnosis: Diagnosis, mend: list[Finding], chances: list[Finding], in_doubt: bool) -> str:
    """Leads with the top-ranked finding, fault or opportunity. Then says what the step waits for, or if the gain is
    small, where its time goes. A place that takes far more than the findings give back is named as well, and where
    much of the run lies between the steps, unless the finding is of the run. ``in_doubt`` it never claims that there is
    no fault."""
    lead = rank([*mend, *chances])[0]
    if lead.kind is Kind.FAULT:
        found = _faults(diagnosis, mend)
    elif mend:
        found = f"An opportunity {_gain(lead)}: {_short_name(lead)}; {_faults(diagnosis, mend)}"
    elif lead.saving is None and in_doubt:
        found = f"What stands out, its gain not measured: {_short_name(lead)}"
    elif lead.saving is None:
        nothing = _capitalised(_nothing(diagnosis, "found"))
        found = f"{nothing}; what stands out, its gain not measured: {_short_name(lead)}"
    else:
        first = "the first" if any(larger_below(rank(chances))) else "the largest"
        count = "an opportunity" if len(chances) == 1 else f"{len(chances)} opportunities; {first}"
        found = f"{_capitalised(count) if in_doubt else f'No fault, but {count}'} {_gain(lead)}: {_short_name(lead)}"
    timing = diagnosis.timing
    if not {BEGINNING, ROUNDS_ONLY}.isdisjoint(diagnosis.health):
        return found
    if lead.severity is Severity.LOW and timing.shares:
        return f"{found}; {_where_time_goes(diagnosis)}"
    found = f"{found}; {left}" if (left := _costliest(diagnosis)) else found
    found += _between_cycles(diagnosis) if lead.saving is None or not lead.saving.run_ns else ""
    return f"{found}; {describe_bound(timing)}" if has_device(timing) else found


def _ran_out(finding: Finding) -> str:
    """``out of memory: train.py:31 asked for 512 MB while 79 GB was held, 62 % of it activations``: who asked for
    how much, and what was in the way; empty for any other finding."""
    asked, held = (finding.evidence.get(name) for name in (ASKED_EVIDENCE, HELD_EVIDENCE))
    if finding.severity is not Severity.HIGH or not isinstance(asked, int) or not isinstance(held, int):
        return ""
    who = finding.location.short if finding.location else "the program"
    parts = [
        (size, name.removeprefix(HELD_FOR_EVIDENCE).replace("_", " "))
        for name, size in finding.evidence.items()
        if name.startswith(HELD_FOR_EVIDENCE) and isinstance(size, int)
    ]
    size, label = max(parts, default=(0, ""))
    mostly = f", {format_share(size / max(held, 1))} of it {label}" if size else ""
    return f"out of memory: {who} asked for {format_bytes(asked)} while {format_bytes(held)} was held{mostly}"


def _faults(diagnosis: Diagnosis, mend: list[Finding]) -> str:
    worst = rank(mend)[0]
    if ran_out := _ran_out(worst):
        more = f"; {format_count(len(mend) - 1, 'more fault')}" if len(mend) > 1 else ""
        return f"{_capitalised(ran_out)}{more}"
    if len(mend) == 1:
        return f"1 fault {_cost(worst)}{_beyond(worst)}: {_short_name(worst)}"
    total = diagnosis.total
    together = f" cost {_share_of(total)} together" if total else ""
    return f"{len(mend)} faults{together}; the worst {_cost(worst)}{_beyond(worst)}: {_short_name(worst)}"


def _beyond(finding: Finding) -> str:
    """`` (4 % beyond that)`` where the findings above free part of the same time."""
    left = left_beyond(finding)
    return "" if left is None else f" ({format_share(left)} beyond that)"


def _hottest_line(diagnosis: Diagnosis) -> str:
    """``, the hottest line is train.py:31 with 43 %``; empty if lines are not known."""
    spot = next((spot for spot in diagnosis.hottest if spot.location is not None and not spot.operator), None)
    if spot is None or spot.location is None or diagnosis.costliest:
        return ""
    return f", the hottest line is {spot.location.short} with {format_share(spot.fraction)}"


def _optimizer(diagnosis: Diagnosis) -> str:
    """``, Adadelta's update at main.py:31 takes 20 %``; empty if no optimizer takes much."""
    spot = next((spot for spot in diagnosis.hottest if spot.operator.startswith(_UPDATE)), None)
    if spot is None:
        return ""
    name = spot.operator.removeprefix(_UPDATE).partition(".")[0]
    place = f" at {spot.location.short}" if spot.location else ""
    return f", {name}'s update{place} takes {format_share(spot.fraction)}"


def _short_name(finding: Finding) -> str:
    """``retained-graph at train.py:31``."""
    return f"{finding.rule} at {finding.location.short}" if finding.location else finding.rule


def _cost(finding: Finding) -> str:
    """``costs 43 % (30 to 50) of the step``."""
    saving, share = finding.saving, finding.evidence.get(SHARE_OF_TIME)
    if saving is None and isinstance(share, float):
        return f"takes {format_share(share)} of the run's time"
    if saving is None:
        return "has no measured cost"
    if grows(finding) and (saving.fraction < 0.10 or saving.time_ns <= 0):
        until = f", {soon}" if (soon := full_after(finding)) else ""
        return f"makes memory grow by {format_bytes(saving.bytes)} per step{until}"
    if saving.time_ns > 0:
        return f"costs {_share_of(saving)}"
    return f"holds {format_bytes(saving.bytes)} of memory" if saving.bytes > 0 else "costs no time here"


def _gain(finding: Finding) -> str:
    """``would save 43 % (30 to 50) of the step``."""
    saving = finding.saving
    if saving is None or (saving.time_ns <= 0 and saving.bytes <= 0):
        return "has a gain that was not measured"
    if saving.time_ns <= 0:
        return f"would free {format_bytes(saving.bytes)} of memory"
    return f"would save {_share_of(saving)}"


def _share_of(saving: Saving) -> str:
    """``43 % (30 to 50) of the step``."""
    low, high = format_share(saving.low), format_share(saving.high)
    likely = f" ({low.removesuffix(' %')} to {high.removesuffix(' %')})" if low != high else ""
    return f"{format_share(saving.fraction)}{likely} of the {saving.whole}"


def _memory(diagnosis: Diagnosis) -> str:
    """The peak of the fullest device, its main use, and how much more was reserved."""
    device = max(diagnosis.memory, key=lambda one: one.peak_bytes)
    part = device.parts[0] if device.parts else None
    mostly = f", {format_share(part.fraction)} of it {part.label}" if part else ""
    which = f" on GPU {device.device}" if len(diagnosis.memory) > 1 else ""
    peak = "the peak" if device.history_entries else "what is held"
    reserved = format_bytes(max(device.reserved_bytes, device.reserved_peak_bytes))
    return f"{peak} is {format_bytes(device.peak_bytes)}{which}{mostly}, and {reserved} reserved at most"


def _largest_part(timing: Timing) -> str:
    """What the step waits for; without a device the largest part of its time."""
    if not timing.shares:
        return step_figure(timing)
    return describe_bound(timing) or _of_host(timing.shares)


def _of_host(shares: Sequence[TimeShare]) -> str:
    computing = sum(share.fraction for share in shares if share.label in HOST_COMPUTING)
    others = [(share.fraction, share.label) for share in shares if share.label not in HOST_COMPUTING]
    fraction, label = max(others, default=(0.0, ""))
    operators = f"operators take {format_share(computing)} of the step"
    if computing >= _MOSTLY_COMPUTING_SHARE or not label:
        return operators
    if computing >= fraction:
        return f"{operators}, {label} {format_share(fraction)}"
    return f"{label}: {format_share(fraction)} of the step"


def step_figure(timing: Timing) -> str:
    """``5 steps of 12.3 ms``."""
    if timing.step_time_ns is None:
        return format_count(timing.steps, "step")
    return f"{format_count(timing.steps, 'step')} of {format_time(timing.step_time_ns)}"
