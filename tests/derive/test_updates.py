"""What of an optimizer's step is the optimizer's own work."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.time.shares import time_shares
from tests.traces import annotation, facts_of, op, step

STEP = "Optimizer.step#SGD.step"
NODE = "autograd::engine::evaluate_function: MmBackward0"


def _inside(facts: Facts) -> list[str]:
    return [facts.trace.name_of(row) for row in np.flatnonzero(facts.updates.inside)]


def _windows_us(facts: Facts) -> list[tuple[float, float]]:
    return [(a / 1000, b / 1000) for a, b in zip(facts.updates.start_ns, facts.updates.end_ns, strict=True)]


def test_a_step_without_a_closure_is_all_update():
    facts = facts_of(
        [step(0, 0, 100), op("aten::mm", 10, 10), op(NODE, 30, 20), annotation(STEP, 60, 30), op("aten::add_", 70, 5)]
    )
    assert _windows_us(facts) == [(60, 90)]
    assert _inside(facts) == [STEP, "aten::add_"]


def test_work_of_the_closure_is_not_update():
    facts = facts_of(
        [
            step(0, 0, 100),
            annotation(STEP, 10, 80),
            op("aten::mm", 20, 10),
            op(NODE, 40, 20),
            op("aten::mul", 45, 5),
            op("aten::add_", 70, 5),
        ]
    )
    assert _windows_us(facts) == [(60, 90)]
    assert _inside(facts) == ["aten::add_"]
    assert dict(time_shares(facts)) == {
        "optimizer": 30_000,
        "backward": 20_000,
        "operators of the forward pass and others": 10_000,
        "Python and all else between operators": 40_000,
    }


def test_the_backward_pass_of_a_closure_may_run_on_another_thread():
    facts = facts_of(
        [
            step(0, 0, 100),
            annotation(STEP, 10, 80),
            op("aten::mm", 20, 10),
            op(NODE, 40, 20, tid=2),
            op("aten::add_", 70, 5),
        ]
    )
    assert _windows_us(facts) == [(60, 90)]
    assert _inside(facts) == ["aten::add_"]


def test_each_step_is_judged_separately():
    events = [
        step(0, 0, 200),
        annotation(STEP, 10, 80),
        op(NODE, 40, 20),
        op("aten::add_", 70, 5),
        op(NODE, 110, 10),
        annotation(STEP, 130, 40),
        op("aten::mul_", 140, 5),
    ]
    facts = facts_of(events)
    assert _windows_us(facts) == [(60, 90), (130, 170)]
    assert _inside(facts) == ["aten::add_", STEP, "aten::mul_"]


def test_an_optimizer_that_steps_in_the_backward_pass_counts_as_update():
    facts = facts_of([step(0, 0, 100), op(NODE, 10, 80), annotation(STEP, 40, 20), op("aten::add_", 45, 5)])
    assert _windows_us(facts) == [(40, 60)]
    assert _inside(facts) == [STEP, "aten::add_"]


def test_a_recording_without_optimizers_has_no_updates():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 10, 10)])
    assert len(facts.updates.rows) == 0
    assert not facts.updates.inside.any()
