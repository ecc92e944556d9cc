"""The lines, operators and updates that take most of the time, whether they are at fault or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import HotSpot, Location
from profkit.patterns.time.hottest import Hot, hottest_lines, hottest_operators, hottest_updates
from profkit.report import render
from profkit.run.directory import CallSite, Run
from tests.traces import annotation, facts_of, kernel, mark, op, runtime, step

SITES = (CallSite("/a/train.py", 3, "main", "train(x)"), CallSite("/a/train.py", 9, "train", "return x * x"))


def test_the_time_of_a_line_includes_calls_except_other_lines_of_the_program():
    facts = facts_of([step(0, 0, 100), mark(0, 0, 90), op("aten::mul", 5, 20), mark(1, 30, 40)], callsites=SITES)
    assert hottest_lines(facts) == (Hot(pytest.approx(0.5), site=0), Hot(pytest.approx(0.4), site=1))


def test_lines_are_timed_in_the_traced_step_and_operators_in_the_measured_ones():
    traced = [step(0, 0, 100), mark(1, 0, 50), op("aten::mul", 0, 50)]
    measured = [step(1, 100, 100), op("aten::mul", 100, 20), op("aten::add", 120, 40), op("aten::empty", 121, 1)]
    facts = facts_of([*traced, *measured], callsites=SITES)
    assert hottest_lines(facts) == (Hot(pytest.approx(0.5), site=1),)
    assert hottest_operators(facts) == (Hot(0.4, name="aten::add"), Hot(0.2, name="aten::mul"))


def test_without_marks_no_line_is_hot():
    assert hottest_lines(facts_of([step(0, 0, 100), op("aten::mul", 0, 50)])) == ()


def test_with_a_device_operators_are_timed_on_it():
    launches = [
        op("aten::mm", 0, 10),
        runtime("cudaLaunchKernel", 2, 3, correlation=1),
        op("aten::add", 20, 60),
        runtime("cudaLaunchKernel", 22, 3, correlation=2),
    ]
    work = [kernel("gemm", 10, 70, correlation=1), kernel("vectorized", 80, 10, correlation=2)]
    first, second = hottest_operators(facts_of([step(0, 0, 100), *launches, *work]))
    assert (first.name, second.name) == ("aten::mm", "aten::add")
    assert first.fraction == pytest.approx(7 * second.fraction)


def test_a_diagnosis_without_serious_findings_names_the_hottest_lines_and_operators():
    traced = [step(0, 0, 100), mark(0, 0, 90), op("aten::mul", 0, 50)]
    measured = [step(1, 100, 100), op("aten::mul", 100, 50)]
    found = diagnose(facts_of([*traced, *measured], run=Run(torch="2.13"), callsites=SITES))
    assert found.hottest == (HotSpot(0.9, Location.of(SITES[0])), HotSpot(0.5, operator="aten::mul"))
    assert found.verdict is not None
    assert found.verdict.text.startswith("No known fault; 90 % of the step is at train.py:3 (mostly aten::mul); ")
    text = render(found, "text")
    assert "90 %  train.py:3, at most 90 % to gain\n        train(x)\n" in text
    assert "50 %  aten::mul\n" in text
    assert "hottest" not in str(replace(found, hottest=(), verdict=None))


def updating(length: float) -> list[dict[str, Any]]:
    """A traced step and a measured one, each with an update of so many µs."""
    traced = [step(0, 0, 100), mark(0, 0, 90), annotation("Optimizer.step#Adadelta.step", 50, length)]
    return [
        *traced,
        step(1, 100, 100),
        op("aten::mul", 100, 30),
        annotation("Optimizer.step#Adadelta.step", 150, length),
    ]


@pytest.mark.parametrize(("length", "named"), [(10, True), (9, False)])
def test_an_optimizer_is_named_if_it_takes_a_tenth_of_the_step(length, named):
    facts = facts_of(updating(length), callsites=SITES)
    assert bool(hottest_updates(facts)) == named


def test_an_optimizer_that_takes_long_is_named_in_the_verdict_with_its_line():
    facts = facts_of(updating(20), run=Run(torch="2.13"), callsites=SITES)
    found = diagnose(facts)
    assert hottest_updates(facts) == (Hot(pytest.approx(0.2), site=0, name="Optimizer.step#Adadelta.step"),)
    assert found.verdict is not None
    assert "Adadelta's update at train.py:3 takes 20 %" in found.verdict.text
    assert "20 %  Optimizer.step#Adadelta.step at train.py:3\n" in render(found, "text")


def test_an_optimizer_on_an_unknown_line_is_named_without_it():
    facts = facts_of([step(0, 0, 100), annotation("Optimizer.step#Adadelta.step", 50, 20)])
    assert hottest_updates(facts) == (Hot(pytest.approx(0.2), site=-1, name="Optimizer.step#Adadelta.step"),)


def test_with_a_device_the_hosts_time_of_an_update_does_not_count():
    launch = [runtime("cudaLaunchKernel", 52, 3, correlation=1), kernel("gemm", 55, 40, correlation=1)]
    assert hottest_updates(facts_of([*updating(30), *launch])) == ()
