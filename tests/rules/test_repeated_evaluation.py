"""Evaluations that run in each step and are used rarely."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook
from profkit.rules.repeated_evaluation import repeated_evaluation
from profkit.run.directory import CallSite, Remark, Run
from profkit.savings.simulate import predict_saving
from profkit.source.remark_kinds import RARELY_USED
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
SITES = (
    CallSite("train.py", 5, "main", "train(model)"),
    CallSite("train.py", 6, "main", "accuracy = evaluate(model)"),
    CallSite("train.py", 8, "main", "print(accuracy)"),
    CallSite("train.py", 20, "evaluate", "return model(x).mean()"),
)
LENGTH = 200
"""Of a step, in microseconds."""
RARE = Remark(RARELY_USED, SITES[1], until=6, used_at=8, every=20)
OPEN = Remark(RARELY_USED, SITES[1], until=6, used_at=8)


def epoch(at: float, is_located: bool, is_used: bool = False) -> list[Json]:
    """100 µs of training, then after 7 µs an evaluation of 30 and 20 µs with a pause of 10 µs between."""
    marks = [
        mark(0, at, 110),
        mark(1, at + 110, 70),
        mark(3, at + 111, 68),
        *([mark(2, at + 182, 4)] if is_used else []),
    ]
    operators = [op("aten::mm", at + 5, 100), op("aten::linear", at + 112, 30), op("aten::mean", at + 152, 20)]
    return [*(marks if is_located else []), *operators]


def facts_with(*remarks: Remark, part: Any = epoch, steps: int = 4, run: Run | None = None):
    events = []
    for number in range(steps):
        events += [step(number, LENGTH * number, LENGTH), *part(LENGTH * number, number == 0)]
    return facts_of(events, run=run or Run(torch="2.13.0", remarks=remarks), callsites=SITES)


def find(facts) -> list[Any]:
    return list(repeated_evaluation.check(facts))


def test_an_evaluation_that_is_used_at_every_20th_step_is_reported_with_19_parts_of_20():
    facts = facts_with(RARE)
    (found,) = find(facts)
    assert (found.location.line, found.evidence) == (6, {"operators_per_step": 2})
    assert "once in 20 steps" in found.message
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.95 * 67 / LENGTH, abs=1e-3)


def test_where_the_text_leaves_open_how_often_nine_of_ten_are_taken_for_needless():
    facts = facts_with(OPEN)
    (found,) = find(facts)
    saving = predict_saving(facts, found.edit)
    assert saving.fraction == pytest.approx(0.9 * 67 / LENGTH, abs=1e-3)
    assert saving.low < 0.5 * 67 / LENGTH * 1.1


def used(at: float, is_located: bool) -> list[Json]:
    return epoch(at, is_located, is_used=True)


@pytest.mark.parametrize(("remark", "reported"), [(OPEN, 0), (RARE, 1)])
def test_a_located_step_that_uses_it_leaves_open_whether_all_do(remark, reported):
    assert len(find(facts_with(remark, part=used))) == reported


def test_an_evaluation_that_trains_is_none():
    def part(at: float, is_located: bool) -> list[Json]:
        return [*epoch(at, is_located), annotation("Optimizer.step#SGD.step", at + 173, 3)]

    assert find(facts_with(RARE, part=part)) == []


def test_lines_of_another_function_are_not_meant():
    other = Remark(RARELY_USED, CallSite("train.py", 6, "other", ""), until=6, used_at=8, every=20)
    assert find(facts_with(other)) == []


@pytest.mark.parametrize(("steps_with_it", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_measured_steps_are_the_least(steps_with_it, reported):
    def part(at: float, is_located: bool) -> list[Json]:
        return epoch(at, is_located) if at < LENGTH * (1 + steps_with_it) else [op("aten::mm", at + 5, 100)]

    assert len(find(facts_with(RARE, part=part, steps=5))) == reported


def test_without_a_remark_there_is_nothing_and_without_the_program_it_cannot_look():
    assert find(facts_with()) == []
    with pytest.raises(CannotLook, match="not read"):
        find(facts_with(run=Run()))
