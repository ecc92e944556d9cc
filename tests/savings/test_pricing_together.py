"""Findings that save the same time: each states what it saves beyond those that rank above it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis import judge as judging
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Finding, Kind
from profkit.rules.base import Rule, Suspicion
from profkit.savings.edits import combine, remove
from tests.traces import facts_of, op, step

Judgement = Callable[[Facts], Iterator[Suspicion]]


def recording() -> Facts:
    """Steps of 1 ms: 0.4 ms of attention with 0.3 ms of softmax inside, and 0.2 ms of copying."""
    return facts_of(
        [
            event
            for at in range(0, 4000, 1000)
            for event in (
                step(at // 1000, at, 1000),
                op("attention", at, 400),
                op("softmax", at + 50, 300),
                op("copy", at + 500, 200),
            )
        ]
    )


def suspicion_of(facts: Facts, name: str) -> Suspicion:
    rows = np.flatnonzero(facts.trace.named(name))
    return Suspicion(f"{name} takes long.", "", rows=rows, edit=remove(rows))


def single(name: str, kind: Kind = Kind.FAULT) -> Rule:
    def check(facts: Facts) -> Iterator[Suspicion]:
        yield suspicion_of(facts, name)

    return Rule(name, kind, (), check, "")


def jointly(facts: Facts) -> Iterator[Suspicion]:
    """The softmax and the copies have one cause: together they take half of the step."""
    edits = [remove(np.flatnonzero(facts.trace.named(name))) for name in ("softmax", "copy")]
    together = combine(edits)
    for edit, part in zip(edits, (0.6, 0.4), strict=True):
        yield Suspicion("One of two.", "", edit=edit, joint=together, part=part)


@pytest.fixture
def findings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Finding, ...]:
    monkeypatch.setattr(judging, "all_rules", lambda: {one.name: one for one in request.param})
    return diagnose(recording()).findings


def judged_by(*rules: Rule) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("findings", [rules], indirect=True)


def savings_of(findings: tuple[Finding, ...]) -> list[tuple[str, float | None, float | None]]:
    return [(one.rule, one.saving and one.saving.fraction, one.saving and one.saving.beyond) for one in findings]


@judged_by(single("softmax"), single("copy"), single("attention", Kind.OPPORTUNITY))
def test_work_inside_a_larger_finding_saves_nothing_beyond_it(findings: tuple[Finding, ...]) -> None:
    assert savings_of(findings) == [("attention", 0.4, None), ("softmax", 0.3, 0.0), ("copy", 0.2, 0.2)]


@judged_by(single("attention"), Rule("jointly", Kind.FAULT, (), jointly, ""))
def test_places_with_one_cause_share_what_it_saves_beyond_the_findings_above(
    findings: tuple[Finding, ...],
) -> None:
    """The attention above already saves 0.3 of that half."""
    assert savings_of(findings) == [("attention", 0.4, None), ("jointly", 0.3, 0.12), ("jointly", 0.2, 0.08)]


@judged_by(single("attention"))
def test_a_single_finding_has_nothing_above_it(findings: tuple[Finding, ...]) -> None:
    assert savings_of(findings) == [("attention", 0.4, None)]
