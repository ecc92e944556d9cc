"""Severity and rank: what comes first in every report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.findings.values import (
    FULL_AFTER_EVIDENCE,
    GROWTH_EVIDENCE,
    Diagnosis,
    Finding,
    Kind,
    Location,
    RunSummary,
    Saving,
    Severity,
    Timing,
    full_after,
    left_beyond,
    rank,
    severity_of,
)


def saving(fraction: float) -> Saving:
    return Saving(int(fraction * 1e6), fraction, fraction, fraction)


def finding(rule: str, severity: Severity, kind: Kind = Kind.FAULT, fraction: float = 0.0) -> Finding:
    return Finding(rule, kind, severity, "message", 1, 0.9, "fix", saving=saving(fraction))


@pytest.mark.parametrize(
    ("fraction", "severity"),
    [
        (0.10, Severity.HIGH),
        (0.0999, Severity.MEDIUM),
        (0.03, Severity.MEDIUM),
        (0.0299, Severity.LOW),
        (0.005, Severity.LOW),
        (0.0049, Severity.INFO),
        (0.0, Severity.INFO),
    ],
)
def test_severity_follows_from_the_share_of_the_step(fraction: float, severity: Severity) -> None:
    assert severity_of(saving(fraction)) is severity


@pytest.mark.parametrize(
    ("days", "severity"),
    [
        (None, Severity.HIGH),
        (0.9, Severity.HIGH),
        (1.1, Severity.MEDIUM),
        (6.9, Severity.MEDIUM),
        (7.1, Severity.LOW),
        (126, Severity.LOW),
    ],
)
def test_memory_that_grows_counts_by_the_time_until_it_is_full(days, severity) -> None:
    full_after_ns = None if days is None else days * 86_400e9
    assert severity_of(None, grows_without_bound=True, full_after_ns=full_after_ns) is severity
    assert severity_of(None, full_after_ns=full_after_ns) is Severity.INFO


def test_growth_that_also_takes_much_time_is_high_however_slow_it_is() -> None:
    assert severity_of(saving(0.2), grows_without_bound=True, full_after_ns=1e18) is Severity.HIGH


@pytest.mark.parametrize(("ns", "words"), [(3 * 3.6e12, "full after about 3 hours"), (0, ""), (400 * 86_400e9, "")])
def test_when_memory_is_full_is_told_up_to_a_year(ns, words) -> None:
    leak = replace(finding("leak", Severity.HIGH), evidence={FULL_AFTER_EVIDENCE: ns})
    assert full_after(leak) == words


def test_a_finding_without_a_saving_is_information() -> None:
    assert severity_of(None) is Severity.INFO


def test_faults_and_opportunities_are_ranked_together_by_what_they_save() -> None:
    ranked = rank(
        [
            finding("a-small-fault", Severity.LOW, fraction=0.01),
            finding("big-opportunity", Severity.HIGH, Kind.OPPORTUNITY, 0.5),
            finding("an-equal-opportunity", Severity.HIGH, Kind.OPPORTUNITY, 0.1),
            finding("lesser-fault", Severity.HIGH, fraction=0.1),
            finding("greater-fault", Severity.HIGH, fraction=0.2),
        ]
    )
    expected = ["big-opportunity", "greater-fault", "lesser-fault", "an-equal-opportunity", "a-small-fault"]
    assert [f.rule for f in ranked] == expected


def ranged(rule: str, kind: Kind, fraction: float, low: float, severity: Severity = Severity.HIGH) -> Finding:
    return replace(finding(rule, severity, kind), saving=Saving(int(fraction * 1e6), fraction, low, 1.0))


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (ranged("fault", Kind.FAULT, 0.35, 0.3), "fault"),  # the opportunity gives back 35 to 65 %: who knows
        (ranged("fault", Kind.FAULT, 0.34, 0.3), "opportunity"),
        (ranged("fault", Kind.OPPORTUNITY, 0.45, 0.3), "opportunity"),
        (ranged("fault", Kind.FAULT, 0.45, 0.3, Severity.LOW), "opportunity"),
        (replace(ranged("fault", Kind.FAULT, 0.45, 0.3), saving=None), "opportunity"),
    ],
)
def test_a_fault_that_may_save_as_much_as_an_opportunity_comes_first(fault: Finding, first: str) -> None:
    assert rank([ranged("opportunity", Kind.OPPORTUNITY, 0.5, 0.35), fault])[0].rule == first


def test_an_opportunity_that_is_certainly_larger_stays_above_smaller_faults() -> None:
    sure, unsure = ranged("sure", Kind.OPPORTUNITY, 0.6, 0.5), ranged("unsure", Kind.OPPORTUNITY, 0.5, 0.3)
    fault = ranged("fault", Kind.FAULT, 0.4, 0.35)
    assert rank([fault, unsure, sure]) == (sure, fault, unsure)


def test_memory_that_grows_without_bound_is_ranked_before_time() -> None:
    saving, evidence = Saving(0, 0.0, 0.0, 0.0, 4_000_000), {GROWTH_EVIDENCE: 4_000_000}
    leak = replace(finding("leak", Severity.HIGH), saving=saving, evidence=evidence)
    assert rank([finding("slow", Severity.HIGH, fraction=0.5), leak])[0] == leak


@pytest.mark.parametrize(
    ("beyond", "left"),
    [
        (None, None),  # nothing above has a price
        (0.13, None),
        (0.1251, None),  # half a per cent is not worth a word
        (0.125, 0.125),
        (0.0, 0.0),
    ],
)
def test_an_overlap_with_findings_above_is_stated_from_half_a_per_cent_on(
    beyond: float | None, left: float | None
) -> None:
    shared = finding("shared", Severity.HIGH, fraction=0.13)
    assert left_beyond(replace(shared, saving=replace(saving(0.13), beyond=beyond))) == left


def test_findings_without_a_saving_are_ranked_with_those_that_name_a_line_first() -> None:
    nameless = replace(finding("a", Severity.LOW), location=None, saving=None, confidence=0.9)
    named = replace(finding("b", Severity.LOW), location=Location("train.py", 3, "main"), saving=None, confidence=0.5)
    assert rank([nameless, named]) == (named, nameless)


def test_the_worst_severity_ignores_opportunities() -> None:
    def diagnosis(*findings: Finding) -> Diagnosis:
        timing = Timing(1, 1, "nothing")
        return Diagnosis(RunSummary((), None, None, None, None), timing, findings, {}, ())

    opportunity = finding("x", Severity.HIGH, Kind.OPPORTUNITY)
    assert diagnosis(opportunity).worst is None
    assert diagnosis(opportunity, finding("y", Severity.LOW)).worst is Severity.LOW


SOURCES = {"train.py": {2: "", 3: "for x in xs:", 4: "    y = x", 5: "    z = y", 6: "", 7: "print(z)", 9: "end"}}


def test_a_finding_shows_the_lines_around_its_own() -> None:
    place = Location("train.py", 5, "f", "z = y").within(SOURCES)
    assert place.around == ("for x in xs:", "    y = x", "    z = y", "", "print(z)")
    assert place.around_from == 3, "without an empty line at the edge"


@pytest.mark.parametrize(
    "place",
    [
        Location("train.py", 8, "f", "z = y"),
        Location("train.py", 5, "f", "another = line"),
        Location("other.py", 5, "f", "z = y"),
    ],
)
def test_a_line_that_changed_since_is_shown_alone(place: Location) -> None:
    assert place.within(SOURCES) == place
