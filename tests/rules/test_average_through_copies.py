"""Averages of weights on copies of the model, and copies that something else needs."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.average_through_copies import average_through_copies
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
UPDATE = CallSite("train.py", 4, "main", "teacher.follow(student)")
COPY = CallSite("train.py", 10, "follow", "theirs = copy.deepcopy(student.state_dict())")
AVERAGE = CallSite("train.py", 12, "follow", "mine[name] = 0.9 * mine[name] + 0.1 * theirs[name]")


def find(facts: Facts) -> list[Suspicion]:
    return list(average_through_copies.check(facts))


def recording(
    copying: CallSite = COPY,
    averaging: CallSite = AVERAGE,
    tensors: int = 8,
    adds: str = "aten::add",
    trains: bool = False,
    gives_back: bool = False,
) -> Facts:
    """A located step and two measured ones of 400 µs: a copy of so many tensors, 6 µs each, then rounds that scale and
    add, 4 µs each. It may train the weights in between, and give a copy's memory back 33 µs after the last sum, in 50
    µs."""
    events: list[Json] = []
    for i in range(3):
        at = 400.0 * i
        events.append(step(i, at, 400))
        if i == 0:
            events += [mark(0, at + 1, 390), mark(1, at + 2, 100)]
        events += [op("aten::copy_", at + 5 + 10 * turn, 6) for turn in range(tensors)]
        events += [op("autograd::engine::evaluate_function: AddBackward0", at + 104, 3, sequence=i)] * trains
        for turn in range(tensors):
            start = at + 110 + 20 * turn
            events += [mark(2, start - 1, 18)] if i == 0 else []
            events += [op("aten::mul", start, 4), op(adds, start + 8, 4)]
        if gives_back:
            events += [memory(at + 6, 1 << 20, 4096 + i), memory(at + 295, -(1 << 20), 4096 + i)]
            events.append(op("aten::relu", at + 345, 5))
    return facts_of(events, callsites=(UPDATE, copying, averaging))


def test_giving_a_copy_back_goes_too_whenever_it_comes():
    facts = recording(gives_back=True)
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((257 - 32 + 50) / 400, abs=0.01)


def test_the_copies_go_and_one_operator_a_tensor_stays():
    """From the first copy to the last sum 257 µs, of which eight sums of 4 µs stay."""
    facts = recording()
    (found,) = find(facts)
    assert (
        found.message == "A moving average of 8 tensors is computed on copies: 1 line copies all of them in each step."
    )
    assert found.location is not None
    assert [found.location.line, *(place.line for place in found.also)] == [12, 10]
    assert predict_saving(facts, found.edit).fraction == pytest.approx((257 - 32) / 400, abs=0.01)


@pytest.mark.parametrize(
    "copying",
    [
        CallSite("train.py", 10, "follow", "best = copy.deepcopy(student.state_dict())"),
        CallSite("train.py", 10, "follow", "theirs = student.read(weights)"),
        CallSite("train.py", 10, "follow", "backup = [(name, mine.clone()) for name, mine in theirs.items()]"),
        CallSite("train.py", 10, "follow", "best = copy.deepcopy(mine)"),
    ],
    ids=["a snapshot", "no copy by its text", "names that both read", "a snapshot of the average"],
)
def test_copies_that_the_average_does_not_read_are_silent(copying):
    assert find(recording(copying)) == []


def test_what_a_copying_line_loads_is_the_average():
    load = CallSite("train.py", 10, "follow", "teacher.load_state_dict(mine)")
    other = CallSite("train.py", 10, "follow", "teacher.load_state_dict(theirs)")
    assert len(find(recording(load))) == 1
    assert find(recording(other)) == []


def test_weights_that_are_trained_before_the_average_need_a_copy():
    assert len(find(recording(trains=False))) == 1
    assert find(recording(trains=True)) == []


def test_fast_weights_that_layers_use_are_silent():
    """The copy is trained."""
    assert find(recording(adds="aten::linear")) == []


@pytest.mark.parametrize(("tensors", "reported"), [(7, 0), (8, 1)])
def test_it_counts_from_eight_tensors_on(tensors, reported):
    assert len(find(recording(tensors=tensors))) == reported


def test_without_lines_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::mul", 10, 40)])
    assert Need.LINES in missing_needs(facts, average_through_copies.needs)
