"""Copies of all weights in each step: reported where nothing in the step reads them."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Facts, Need, Suspicion, missing_needs
from profkit.rules.state_copied_in_step import state_copied_in_step
from profkit.run.directory import CallSite, OptimizerUse, Run
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
CALL = CallSite("train.py", 4, "main", "train(batch)")
COPY = CallSite("train.py", 10, "train", "self.best = copy.deepcopy(self.model.state_dict())")
OTHER = CallSite("train.py", 12, "train", "loss = loss * scale")


def line(source: str) -> CallSite:
    return CallSite("train.py", 10, "train", source)


def after(source: str) -> CallSite:
    return CallSite("train.py", 12, "train", source)


def recording(
    copying: CallSite = COPY,
    other: CallSite = OTHER,
    tensors: int = 8,
    trained: int = 8,
    makes: str = "aten::copy_",
    steps_with: int = 3,
    gives_back: bool = False,
) -> Facts:
    """A located step and two measured ones of 400 µs: a copy of so many tensors, 6 µs each, then a product of 40 µs.
    It may give the earlier copy back 30 µs after that, in 50 µs."""
    events: list[Json] = []
    for i in range(3):
        at = 400.0 * i
        events.append(step(i, at, 400))
        if i == 0:
            events += [mark(0, at + 1, 390), mark(1, at + 2, 200), mark(2, at + 210, 100)]
        if i < steps_with:
            events += [op(makes, at + 5 + 10 * turn, 6) for turn in range(tensors)]
        events.append(op("aten::mul", at + 220, 40))
        if gives_back:
            events += [memory(at + 6, 1 << 20, 4096 + i), memory(at + 290, -(1 << 20), 4096 + i)]
            events.append(op("aten::relu", at + 340, 5))
    run = Run(optimizers=(OptimizerUse("SGD", None, None, trained),)) if trained else Run()
    return facts_of(events, callsites=(CALL, copying, other), run=run)


def find(facts: Facts) -> list[Suspicion]:
    return list(state_copied_in_step.check(facts))


def test_a_copy_that_nothing_reads_is_reported_on_its_line():
    (found,) = find(recording())
    assert found.location is not None
    assert found.location.line == 10
    assert found.evidence == {"tensors": 8}
    assert found.message == (
        "Each step copies 8 tensors of a model, and nothing in the step reads the copy. The next one takes its place."
    )


def test_the_line_goes_with_what_lies_between_its_operators():
    facts = recording()
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(76 / 400, abs=0.005)


def test_giving_the_earlier_copy_back_goes_too():
    facts = recording(gives_back=True)
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((76 + 50) / 400, abs=0.01)


@pytest.mark.parametrize(
    "source",
    [
        "best = {name: value.clone() for name, value in model.state_dict().items()}",
        "self.loss, self.best = loss, copy.deepcopy(self.model.state_dict())",
        'self.kept["best"] = copy.deepcopy(self.model)',
    ],
)
def test_other_forms(source):
    assert len(find(recording(line(source)))) == 1


@pytest.mark.parametrize(
    "source", ["self.model.load_state_dict(self.best)", "delta = norm(self.best)", "for p, q in zip(ps, self.best):"]
)
def test_a_copy_that_the_step_reads_is_silent(source):
    assert find(recording(other=after(source))) == []


@pytest.mark.parametrize("source", ["if self.best is None:", "if self.best is not None and loss < 1:"])
def test_a_question_whether_there_is_one_reads_nothing(source):
    assert len(find(recording(other=after(source)))) == 1


@pytest.mark.parametrize(
    "source", ["return copy.deepcopy(model.state_dict())", "snapshots.append(copy.deepcopy(model.state_dict()))"]
)
def test_what_goes_elsewhere_or_is_gathered_is_silent(source):
    assert find(recording(line(source))) == []


@pytest.mark.parametrize(("tensors", "trained", "count"), [(8, 16, 1), (8, 17, 0), (7, 8, 0), (8, 0, 1)])
def test_boundaries_of_the_tensors(tensors, trained, count):
    assert len(find(recording(tensors=tensors, trained=trained))) == count


def test_a_line_that_also_computes_is_silent():
    assert find(recording(makes="aten::mul")) == []


@pytest.mark.parametrize(("steps_with", "count"), [(3, 1), (1, 0)])
def test_it_has_to_come_in_most_steps(steps_with, count):
    assert len(find(recording(steps_with=steps_with))) == count


def test_without_lines_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::copy_", 10, 40)])
    assert Need.LINES in missing_needs(facts, state_copied_in_step.needs)
