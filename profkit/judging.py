"""What the rules suspect, and the findings that it becomes: each rule judges, and the replay prices what it hands over.

Of a large recording two processes share the rules. Each takes the next one from a pipe; the other process is a fork,
which has all that was derived by then. The findings stand in the order of the rules, whoever judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts
from profkit.derive.places import call_site, enclosing_function
from profkit.findings import GROWTH_EVIDENCE, Finding, Location, Saving, Severity, severity_of
from profkit.forks import Channel, Fork, processes_at_hand
from profkit.rules import all_rules
from profkit.rules.base import CannotLook, Rule, Suspicion, missing_needs, reason_for
from profkit.savings.edits import Edit
from profkit.savings.simulate import predict_saving

OWN_ERROR = "failed inside profkit, please report it"
"""How the reason begins when a rule did not abstain but broke; the tests look for it."""
_SHARED_EVENTS = 100_000
"""Fewer are judged in a fifth of a second: to derive a part of them twice would gain next to nothing."""


class Judged(Struct, frozen=True):
    """What a rule suspects, and the finding that it became. ``edit`` is the one that the saving rests on."""

    rule: str
    suspicion: Suspicion
    finding: Finding
    edit: Edit | None


class _Outcome(Struct, frozen=True):
    """What one rule found, or why it could not look."""

    judged: tuple[Judged, ...] = ()
    reason: str | None = None


def judge_all(facts: Facts, alone: bool = False) -> tuple[list[Judged], dict[str, str]]:
    """What the rules found, and why some could not look. ``alone`` keeps it in this process, for what another one found
    comes without its experiments."""
    rules = tuple(all_rules().values())
    outcomes: dict[int, _Outcome] = {}
    if not alone and len(facts.trace.events) >= _SHARED_EVENTS and processes_at_hand() > 1:
        with suppress(OSError):  # without processes or pipes this one judges by itself
            outcomes = _judge_shared(facts, rules)
    judged: list[Judged] = []
    skipped: dict[str, str] = {}
    for number, rule in enumerate(rules):
        outcome = outcomes[number] if number in outcomes else _judge_by(facts, rule)
        judged += outcome.judged
        if outcome.reason is not None:
            skipped[rule.name] = outcome.reason
    return judged, skipped


def _judge_shared(facts: Facts, rules: Sequence[Rule]) -> dict[int, _Outcome]:
    """By the number of the rule what two processes found; what is missing nobody judged."""
    for derived in (facts.lines, facts.operators, facts.launches, facts.waits, facts.memory, facts.updates):
        assert derived is not None  # both need it: derived before, it is there for both
    numbers, source = os.pipe()
    os.write(source, bytes(range(len(rules))))
    os.close(source)
    try:
        other = Fork(lambda channel: _judge_elsewhere(facts, rules, numbers, channel))
        try:
            found = {number: _judge_by(facts, rules[number]) for number in _next_numbers(numbers)}
            with suppress(EOFError, OSError):
                found |= other.channel.receive()
        finally:
            other.end()
    finally:
        os.close(numbers)
    return found


def _judge_elsewhere(facts: Facts, rules: Sequence[Rule], numbers: int, answers: Channel) -> None:
    """Send what was found, without the experiments: they hold functions, which cannot be sent."""
    found = {}
    for number in _next_numbers(numbers):
        outcome = _judge_by(facts, rules[number])
        judged = (structs.replace(one, suspicion=structs.replace(one.suspicion, trial=None)) for one in outcome.judged)
        found[number] = structs.replace(outcome, judged=tuple(judged))
    answers.send(found)


def _next_numbers(numbers: int) -> Iterator[int]:
    while taken := os.read(numbers, 1):
        yield taken[0]


def _judge_by(facts: Facts, rule: Rule) -> _Outcome:
    missing = missing_needs(facts, rule.needs)
    if missing:
        return _Outcome(reason=reason_for(facts, missing[0]))
    try:
        return _Outcome(tuple(_judge(facts, rule, suspicion) for suspicion in rule.check(facts)))
    except CannotLook as reason:
        return _Outcome(reason=str(reason))
    except Exception as error:  # one broken rule must not cost the user what the others found
        return _Outcome(reason=f"{OWN_ERROR}: {type(error).__name__}: {error}")


def _judge(facts: Facts, rule: Rule, suspicion: Suspicion) -> Judged:
    saving = predict_saving(facts, suspicion.edit, suspicion.size_bytes) if suspicion.edit else None
    if saving is None and suspicion.size_bytes:
        saving = Saving(0, 0.0, 0.0, 0.0, suspicion.size_bytes)
    growth = {GROWTH_EVIDENCE: suspicion.size_bytes} if suspicion.grows else {}
    per_step = round(len(suspicion.rows) / max(facts.steps.measured_count, 1))
    finding = Finding(
        rule=rule.name,
        kind=suspicion.kind or rule.kind,
        severity=suspicion.severity or weigh(saving, suspicion),
        message=suspicion.message,
        count=suspicion.count if suspicion.count is not None else max(1, per_step),
        confidence=suspicion.confidence,
        fix=suspicion.fix,
        location=suspicion.location or _locate(facts, suspicion),
        also=suspicion.also,
        saving=saving,
        evidence={**suspicion.evidence, **growth},
    )
    return Judged(rule.name, suspicion, finding, suspicion.edit)


def weigh(saving: Saving | None, suspicion: Suspicion) -> Severity:
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
