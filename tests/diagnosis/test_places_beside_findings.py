"""A place that takes far more than the findings give back is told beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.diagnosis import pipeline
from profkit.findings.values import Diagnosis, Finding, Kind, Location, Saving, severity_of
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, op, step

SITES = (CallSite("/a/train.py", 3, "main", "x = crawl(x)"), CallSite("/a/train.py", 9, "main", "y = x + 1"))


def place_told(*findings: Finding) -> list[int]:
    traced = [
        step(0, 0, 1_000),
        mark(0, 0, 800),
        op("aten::sort", 10, 700),
        mark(1, 800, 150),
        op("aten::add", 810, 90),
    ]
    measured = [
        event
        for number in (1, 2, 3)
        for at in (1_000 * number,)
        for event in (step(number, at, 1_000), op("aten::sort", at + 10, 700), op("aten::add", at + 810, 90))
    ]
    facts = facts_of([*traced, *measured], callsites=SITES)
    bare = replace(pipeline.diagnose(facts), findings=(), hottest=(), costliest=())
    diagnosis: Diagnosis = pipeline._with_steps(facts, replace(bare, findings=findings), [])
    return [place.location.line for place in diagnosis.costliest if place.location is not None]


def finding(fraction: float, line: int = 20) -> Finding:
    saving = Saving(int(fraction * 1e6), fraction, fraction, fraction)
    where = Location("/a/train.py", line, "f")
    return Finding("a-rule", Kind.FAULT, severity_of(saving), "", 1, 1.0, "", where, saving=saving)


def test_a_small_gain_does_not_hide_it():
    assert place_told(finding(0.05)) == [3]


@pytest.mark.parametrize("fraction", [0.3, 0.5])
def test_beside_a_large_gain_it_is_not_told(fraction):
    assert place_told(finding(fraction)) == []


def test_a_place_that_a_finding_names_is_not_told_again():
    assert place_told(finding(0.05, line=3)) == []


def test_without_findings_all_places_are_told():
    assert place_told()[:2] == [3, 9]
