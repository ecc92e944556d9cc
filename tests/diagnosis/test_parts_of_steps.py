"""What a part of a step is worth: as much as the rest of the run says."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Diagnosis, Finding, Severity
from profkit.run.directory import CallSite, Run
from tests.patterns.looks import BEGUN_NS, EVALUATE, MS, UPDATE, looked_at
from tests.traces import facts_of, mark, op

SITES = tuple(CallSite("train.py", line, "main") for line in (1, 43, 44))
LENGTHS = (4, 6, 5, 8, 4)


def opening() -> list[dict[str, Any]]:
    """20 ms of set-up, then rounds of a loop over elements at line 43 with a third of them spent in a product."""
    events, at = [mark(0, 0, 20_000), op("aten::randn", 0, 10)], 20_000.0
    for length in LENGTHS:
        events += [mark(1, at, 1000 * length)]
        for one in range(length * 12):
            events += [op("aten::select", at + 50 * one, 20, dims=[[1000], [], []], types=["float", "", ""])]
            events += [op("aten::add", at + 50 * one + 25, 20, dims=[[], []], types=["float", "float"])]
        events += [op("aten::mm", at + 600 * length, 400 * length, dims=[[64, 64], [64, 64]])]
        events += [mark(2, at + 1000 * length, 10)]
        at += 1000 * length + 10
    return events


def judged(seen_ms: int | None, **fields: Any) -> Diagnosis:
    """The opening of a program whose line 43 took so many of each hundred milliseconds later."""
    columns = [{EVALUATE: 100 * MS}] + [{UPDATE: (seen_ms or 0) * MS, EVALUATE: (100 - (seen_ms or 0)) * MS}] * 8
    account = looked_at(columns) if seen_ms is not None else None
    run = Run(torch="2.13", reference_step_ns=(10**9,), **fields)
    return diagnose(facts_of(opening(), run=run, callsites=SITES, account=account, baseTimeNanoseconds=BEGUN_NS))


def loop(diagnosis: Diagnosis) -> Finding:
    return next(one for one in diagnosis.findings if one.rule == "tensor-element-loop")


def test_the_share_is_that_of_the_loop_without_what_came_before():
    found = loop(judged(50))
    assert found.saving is not None
    assert found.saving.whole == "part that was recorded"
    assert 0.45 <= found.saving.fraction <= 0.6
    assert "no whole step was recorded, only rounds of a loop" in " ".join(judged(50).health)


@pytest.mark.parametrize(
    ("seen_ms", "severity", "told"),
    [
        (50, Severity.HIGH, "After the recording the program spent about 50 % of its time there."),
        (8, Severity.MEDIUM, "After the recording the program spent about 8.0 % of its time there."),
        (2, Severity.LOW, "After the recording the program was hardly seen there."),
        (0, Severity.INFO, "After the recording the program was hardly seen there."),
        (None, Severity.LOW, ""),
    ],
)
def test_what_a_part_costs_counts_by_what_it_goes_on_to_cost(seen_ms, severity, told):
    found = loop(judged(seen_ms))
    assert found.severity is severity
    assert found.message.endswith(told) if told else "After the recording" not in found.message


def test_whole_steps_are_judged_by_themselves():
    events = [op("aten::mm", 0, 1), *opening()]
    run = Run(torch="2.13", step_signal="optimizer steps", reference_step_ns=(10**9,))
    account = looked_at([{EVALUATE: 100 * MS}] * 10)
    diagnosis = diagnose(facts_of(events, run=run, callsites=SITES, account=account, baseTimeNanoseconds=BEGUN_NS))
    assert all("After the recording" not in one.message for one in diagnosis.findings)
