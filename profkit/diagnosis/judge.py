"""What the rules suspect, and what becomes of it: each rule judges, and a replay of the step prices its edits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from msgspec import Struct, structs

from profkit.core.failures import describe_failure
from profkit.core.units import format_share, format_time
from profkit.derive.facts import Facts
from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.steps.boundaries import ONGOING_LOOP, whole_window
from profkit.diagnosis.settings import Settings
from profkit.findings.accounts import Account
from profkit.findings.values import (
    FULL_AFTER_EVIDENCE,
    GROWTH_EVIDENCE,
    HIGH_FROM,
    MEDIUM_FROM,
    Change,
    Finding,
    Kind,
    Location,
    Saving,
    Severity,
    rank_order,
    severity_of,
)
from profkit.patterns.attribution import leading_site
from profkit.patterns.frequency import times_per_step
from profkit.patterns.places.events import call_site, enclosing_function
from profkit.patterns.retention.until_full import time_until_full_ns
from profkit.patterns.time.start_up import describe_start_up
from profkit.patterns.whole_run.afterwards import share_afterwards
from profkit.patterns.whole_run.marking import spans_of_lines
from profkit.patterns.whole_run.phases import whole_run
from profkit.rules import all_rules
from profkit.rules.base import CannotLook, Rule, Suspicion, missing_needs, reason_for
from profkit.savings.edits import Edit
from profkit.savings.launch.launch_savings import predict_launch_saving, predict_together
from profkit.savings.simulate import predict_part, predict_saving
from profkit.savings.taken_out import account_of, account_of_launch
from profkit.source.changes import rewrite_line
from profkit.source.code import MOST_SOURCE


class PricedFinding(Struct, frozen=True):
    """What a rule suspects, and the finding made of it. ``edit`` is the one behind the saving."""

    rule: str
    suspicion: Suspicion
    finding: Finding
    edit: Edit | None


class Outcome(Struct, frozen=True):
    """What one rule found, or why it could not look."""

    rule: str
    judged: tuple[PricedFinding, ...] = ()
    reason: str | None = None


def judging_tasks(facts: Facts, settings: Settings, with_experiments: bool = False) -> list[Callable[[], Outcome]]:
    """A task for each rule that the settings ask for. Its result can be sent to another process, unless it comes with
    experiments, which hold functions."""
    judge = _judge_by if with_experiments else _judge_without_experiments
    return [partial(judge, facts, rule) for rule in all_rules().values() if settings.wants(rule.name)]


def gather(outcomes: Sequence[Outcome]) -> tuple[list[PricedFinding], dict[str, str]]:
    """What the rules found, and why some could not look."""
    judged = [one for outcome in outcomes for one in outcome.judged]
    return judged, {outcome.rule: outcome.reason for outcome in outcomes if outcome.reason is not None}


_MOST_TOGETHER = 8
"""Findings priced beyond those above them. Each takes a replay, and nobody reads as far as the ninth to save time."""


def price_together(facts: Facts, judged: Sequence[PricedFinding]) -> list[PricedFinding]:
    """The findings as they rank, each with what it gives back beyond those above it: two fixes may free the same time,
    which nobody gets twice."""
    ranked = [judged[at] for at in rank_order([one.finding for one in judged])]
    priced = [at for at, one in enumerate(ranked) if _frees_time(one)][:_MOST_TOGETHER]
    edits: list[Edit | JointEdit] = []
    gains: dict[int, float] = {}
    for at in priced if len(priced) > 1 else ():
        one, suspicion = ranked[at], ranked[at].suspicion
        edit = suspicion.joint or edit_behind(one) or Edit()  # places with one cause share an edit
        if id(edit) not in gains:
            edits.append(edit)
            gains[id(edit)] = predict_together(facts, edits).fraction - sum(gains.values())
        if at != priced[0] and one.finding.saving is not None:
            gain = max(0.0, gains[id(edit)] * (suspicion.part if suspicion.joint else 1.0))
            saving = replace(one.finding.saving, beyond=round(min(gain, one.finding.saving.fraction), 6))
            ranked[at] = structs.replace(one, finding=replace(one.finding, saving=saving))
    return ranked


def _frees_time(one: PricedFinding) -> bool:
    saving, severity = one.finding.saving, one.finding.severity
    is_free = saving is not None and saving.fraction > 0
    return is_free and edit_behind(one) is not None and severity is not Severity.INFO


def edit_behind(one: PricedFinding) -> Edit | JointEdit | None:
    """The change behind the finding's price: to the launch, or to this rank."""
    return one.suspicion.launch_edit or one.edit


def _judge_without_experiments(facts: Facts, rule: Rule) -> Outcome:
    outcome = _judge_by(facts, rule)
    judged = (structs.replace(one, suspicion=structs.replace(one.suspicion, trial=None)) for one in outcome.judged)
    return structs.replace(outcome, judged=tuple(judged))


def _judge_by(facts: Facts, rule: Rule) -> Outcome:
    try:
        return Outcome(rule.name, tuple(_judge(facts, rule, suspicion) for suspicion in _suspect(facts, rule)))
    except CannotLook as reason:
        return Outcome(rule.name, reason=str(reason))
    except Exception as error:  # one broken rule must not cost the user the findings of the others
        return Outcome(rule.name, reason=describe_failure(error))


def _suspect(facts: Facts, rule: Rule) -> list[Suspicion]:
    """What the rule sees in the recording. If that is nothing, or it cannot look, what it sees in a memory snapshot."""
    if facts.run.is_light:
        raise CannotLook("of this rank only collectives and steps were recorded")
    by_snapshot = rule.by_snapshot if facts.snapshot is not None else None
    try:
        if started := describe_start_up(facts):
            raise CannotLook(f"{started}, which comes once")
        missing = missing_needs(facts, rule.needs)
        if missing:
            raise CannotLook(reason_for(facts, missing[0]))
        found = list(rule.check(facts))
    except CannotLook:
        if by_snapshot is None:
            raise
        found = []
    return found or list(by_snapshot(facts) if by_snapshot is not None else ())


def _judge(facts: Facts, rule: Rule, suspicion: Suspicion) -> PricedFinding:
    saving = _price(facts, suspicion)
    if saving is None and suspicion.size_bytes:
        saving = Saving(0, 0.0, 0.0, 0.0, suspicion.size_bytes)
    growth: dict[str, float | int] = {GROWTH_EVIDENCE: suspicion.size_bytes} if suspicion.grows else {}
    full_ns = _full_after_ns(facts, suspicion)
    if full_ns is not None:
        growth[FULL_AFTER_EVIDENCE] = round(full_ns)
    location = suspicion.location or _locate(facts, suspicion)
    later = _later_share(facts, saving, (location, *suspicion.also))
    finding = Finding(
        rule=rule.name,
        kind=suspicion.kind or rule.kind,
        severity=_no_higher_than_later(
            facts,
            suspicion.severity or _weigh(suspicion, saving, suspicion.kind or rule.kind, full_ns),
            suspicion,
            saving,
            later,
        ),
        message=_tell(suspicion, saving) + _tell_later(later),
        count=suspicion.count if suspicion.count is not None else times_per_step(facts, suspicion.rows),
        confidence=suspicion.confidence,
        fix=suspicion.fix,
        location=location,
        also=suspicion.also,
        saving=saving,
        evidence={**suspicion.evidence, **growth},
        change=_change(suspicion, location),
        account=_account(facts, suspicion),
        in_run=_in_run(facts, suspicion, location),
    )
    return PricedFinding(rule.name, suspicion, finding, suspicion.edit)


def _in_run(facts: Facts, suspicion: Suspicion, location: Location | None) -> tuple[tuple[int, int], ...]:
    """When the run was at the line, for what costs the run and not each step."""
    if not suspicion.run_ns or location is None:
        return ()
    return spans_of_lines(facts, {(location.file, location.line)}, suspicion.run_when)


def _weigh(suspicion: Suspicion, saving: Saving | None, kind: Kind, full_after_ns: float | None) -> Severity:
    """By what the fix gives back."""
    return no_higher_than_sure(weigh(saving, suspicion, full_after_ns), saving, kind)


def _later_share(facts: Facts, saving: Saving | None, places: Sequence[Location | None]) -> float | None:
    """Of what was found in a part of a step, in the program's beginning, or in a loop that may be no step: the share
    of the run after the recording that passed at its lines. None if nobody knows."""
    if saving is None or not _is_of_unknown_part(facts, saving) or not saving.time_ns:
        return None
    return share_afterwards(facts, {(one.file, one.line) for one in places if one is not None})


def _tell_later(later: float | None) -> str:
    if later is None:
        return ""
    if later < MEDIUM_FROM:
        return " After the recording the program was hardly seen there."
    return f" After the recording the program spent about {format_share(later)} of its time there."


def _no_higher_than_later(
    facts: Facts, severity: Severity, suspicion: Suspicion, saving: Saving | None, later: float | None
) -> Severity:
    """What a part of a step costs counts by what it goes on to cost. If nobody knows, what only the program's beginning
    shows comes once: its time is of low severity. Rounds of a loop after which little came, if none, are that much of
    what was recorded."""
    if saving is None or not _is_of_unknown_part(facts, saving) or suspicion.grows or suspicion.peak_fraction > 0:
        return severity
    if later is None and facts.is_beginning:
        return max(severity, Severity.LOW, key=lambda one: one.rank)
    gain = min(saving.fraction, later) if later is not None else saving.fraction * _recorded_share(facts)
    return max(severity, severity_of(replace(saving, fraction=gain)), key=lambda one: one.rank)


def _is_of_unknown_part(facts: Facts, saving: Saving) -> bool:
    """Whether nothing but the rest of the run tells how much of the program the saving's step is."""
    is_of_step = saving.time_ns_per_step > 0 and facts.has_trace
    return saving.of_part or (is_of_step and facts.steps.source == ONGOING_LOOP)


def _recorded_share(facts: Facts) -> float:
    """The share of the recording that its steps are; all of it for a step that was cut off."""
    steps = facts.steps
    if steps.source != ONGOING_LOOP:
        return 1.0
    begin, end, _ = whole_window(facts.trace)
    return min(1.0, float((steps.end_ns - steps.start_ns).sum()) / max(int(end[0] - begin[0]), 1))


def _account(facts: Facts, suspicion: Suspicion) -> Account | None:
    if suspicion.launch_edit is not None:
        return account_of_launch(facts, suspicion.launch_edit)
    if suspicion.joint is not None:
        return account_of(facts, suspicion.joint, suspicion.part)
    return account_of(facts, suspicion.edit) if suspicion.edit is not None else None


def _change(suspicion: Suspicion, location: Location | None) -> Change | None:
    """The fix as a changed line, if the line was recorded whole and proves that the change fits."""
    if suspicion.rewrite is None or location is None or location.precision != "call":
        return None
    before = location.source
    after = rewrite_line(before, suspicion.rewrite) if len(before) < MOST_SOURCE else None
    return None if after is None else Change(location.file, location.line, before, after)


def _tell(suspicion: Suspicion, saving: Saving | None) -> str:
    """The message. If the saving exceeds the time that the message names, it also says why: the two figures would
    contradict each other."""
    if saving is None or not suspicion.spent_ns or saving.time_ns_per_step <= suspicion.spent_ns:
        return suspicion.message
    return (
        f"{suspicion.message} Without it the {saving.whole} would be {format_time(saving.time_ns_per_step)} shorter: "
        "what runs around it, or waits for it, goes too."
    )


def _price(facts: Facts, suspicion: Suspicion) -> Saving | None:
    if suspicion.launch_edit is not None:
        return predict_launch_saving(facts, suspicion.launch_edit)
    if suspicion.joint is not None:
        return predict_part(facts, suspicion.joint, suspicion.part)
    if suspicion.run_ns:
        return _price_run(facts, suspicion)
    return predict_saving(facts, suspicion.edit, suspicion.size_bytes) if suspicion.edit else None


def _price_run(facts: Facts, suspicion: Suspicion) -> Saving | None:
    """The saving as a share of the run without profkit's own part: all of it at most, whatever a file from anybody
    claims."""
    whole = whole_run(facts)
    if whole is None:
        return None
    run_ns = min(max(suspicion.run_ns, 0), whole.programs_ns)
    fraction = run_ns / whole.programs_ns
    spread = fraction * suspicion.run_uncertainty
    return Saving(0, fraction, max(0.0, fraction - spread), min(1.0, fraction + spread), run_ns=run_ns)


def _full_after_ns(facts: Facts, suspicion: Suspicion) -> float | None:
    """When growing memory is full; None if it does not grow, or nobody knows."""
    if not suspicion.grows or suspicion.is_bounded or not facts.has_trace:
        return None
    return time_until_full_ns(facts, suspicion.size_bytes - suspicion.host_bytes, suspicion.host_bytes)


def weigh(saving: Saving | None, suspicion: Suspicion, full_after_ns: float | None = None) -> Severity:
    """By time. A lower memory peak counts too: medium from half of the peak, low from a tenth."""
    by_time = severity_of(saving, suspicion.grows, full_after_ns)
    by_peak = (
        Severity.MEDIUM
        if suspicion.peak_fraction >= 0.5
        else Severity.LOW
        if suspicion.peak_fraction >= 0.1
        else Severity.INFO
    )
    return min(by_time, by_peak, key=lambda severity: severity.rank)


def no_higher_than_sure(severity: Severity, saving: Saving | None, kind: Kind) -> Severity:
    """An opportunity is only high if the low end of its range is: nobody has measured what other kernels, types or
    batches bring here. A fault is if that end is still of medium severity."""
    least = HIGH_FROM if kind is Kind.OPPORTUNITY else MEDIUM_FROM
    if severity is Severity.HIGH and saving is not None and saving.low < least and saving.fraction >= HIGH_FROM:
        return Severity.MEDIUM
    return severity


def _locate(facts: Facts, suspicion: Suspicion) -> Location | None:
    """The line that most of the rows come from; if no line is known, the function around them. None without rows: a
    finding of a memory snapshot whose stacks are lost has neither, and no steps to look in."""
    if not len(suspicion.rows):
        return None
    site = call_site(facts, leading_site(facts.lines.site[suspicion.rows]))
    if site is not None:
        return Location.of(site)
    around = enclosing_function(facts, suspicion.rows)
    return Location.in_function(around) if around else None
