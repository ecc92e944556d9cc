"""Output layers whose result is used at one position, and layers whose result is used at several."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.discarded_logits import discarded_logits
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
BATCH, LENGTH, WIDTH, WORDS = 2, 10, 8, 50
STEP = 200
"""Microseconds. The layer takes 100 of them, and the cheapest operator 2."""


def find(facts) -> list[Suspicion]:
    return list(discarded_logits.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def head(at: float, length: int = LENGTH, **more: Any) -> Json:
    return tensor_op("linear", at, 100, [BATCH, length, WIDTH], [WORDS, WIDTH], [WORDS], **more)


def select(at: float, dim: int = 1, index: int = -1, length: int = LENGTH) -> Json:
    return tensor_op("select", at, 2, [BATCH, length, WORDS], [], [], concrete=["", str(dim), str(index)])


def cut(at: float, dim: int, first: int) -> Json:
    return tensor_op(
        "slice",
        at,
        2,
        [BATCH, LENGTH, WORDS],
        [],
        [],
        [],
        [],
        concrete=["", str(dim), str(first), "9223372036854775807", "1"],
    )


def steps_of(*after: Json, length: int = LENGTH) -> list[Json]:
    """Four steps with the layer at 10 µs. ``after`` are the events after it, with times relative to 120 µs."""
    return [
        event
        for i in range(4)
        for event in (
            step(i, STEP * i, STEP),
            head(STEP * i + 10, length),
            *({**event, "ts": event["ts"] + STEP * i + 120} for event in after),
        )
    ]


def test_the_layer_keeps_the_share_of_one_position():
    facts = facts_of(steps_of(select(0), tensor_op("softmax", 5, 9, [BATCH, WORDS])))
    (found,) = find(facts)
    assert found.evidence == {"positions": 10}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(100 * (1 - 1 / 10) / STEP, abs=1e-3)


@pytest.mark.parametrize(("length", "reported"), [(8, 1), (7, 0)])
def test_fewer_than_eight_positions_are_silent(length, reported):
    assert len(find(facts_of(steps_of(select(0, length=length), length=length)))) == reported


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([select(0, index=0)], id="the first"),
        pytest.param([cut(0, 1, -1)], id="a slice of the last"),
        pytest.param([cut(0, 0, 0), select(5)], id="[:, -1]"),
        pytest.param([select(0), select(5)], id="the same one twice"),
    ],
)
def test_other_ways_to_take_one_position_are_found(after):
    assert len(find(facts_of(steps_of(*after)))) == 1


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([tensor_op("view", 0, 2, [BATCH, LENGTH, WORDS], [])], id="all go into the loss"),
        pytest.param([select(0), tensor_op("softmax", 5, 9, [BATCH, LENGTH, WORDS])], id="one is looked at besides"),
        pytest.param([select(0), tensor_op("cross_entropy", 5, 9, [BATCH * LENGTH, WORDS], [20])], id="flattened"),
        pytest.param([select(0), select(5, index=0)], id="two positions"),
        pytest.param([cut(0, 1, 1)], id="all but the first"),
        pytest.param([select(0, dim=2)], id="one word at all positions"),
        pytest.param([], id="nobody knows what takes it"),
    ],
)
def test_results_that_are_used_at_several_positions_are_silent(after):
    assert find(facts_of(steps_of(*after))) == []


def test_only_the_calls_of_which_one_position_is_used_are_counted():
    """Each step has two calls. Of the second, the whole result is used."""
    whole = tensor_op("softmax", 20, 9, [BATCH, LENGTH, WORDS])
    events = [
        event
        for i in range(4)
        for event in (
            step(i, 400 * i, 400),
            head(400 * i + 10),
            select(400 * i + 120),
            head(400 * i + 200),
            {**whole, "ts": 400 * i + 310},
        )
    ]
    assert [found.count for found in find(facts_of(events))] == [1]


@pytest.mark.parametrize(("taken", "reported"), [("select", 1), ("softmax", 0)])
def test_a_use_at_the_start_of_the_next_step_counts_for_the_layer_at_the_end(taken, reported):
    """Each step is one call of a model, and the text grows by one word in each."""
    uses = {
        "select": lambda at, length: select(at, length=length),
        "softmax": lambda at, length: tensor_op("softmax", at, 9, [BATCH, length, WORDS]),
    }[taken]
    events = [
        event
        for i in range(4)
        for event in (step(i, STEP * i, STEP), uses(STEP * i + 10, 9 + i), head(STEP * i + 50, 10 + i))
    ]
    assert len(find(facts_of(events))) == reported


def test_the_backward_pass_of_the_layer_shrinks_too():
    events: list[Json] = []
    for i in range(4):
        node = op("autograd::engine::evaluate_function: ViewBackward0", 300 * i + 150, 100, sequence=i)
        events += [step(i, 300 * i, 300), head(300 * i + 10, sequence=i), select(300 * i + 120), node]
    facts = facts_of(events)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(200 * (1 - 1 / 10) / 300, abs=1e-3)


def test_calls_in_steps_without_shapes_are_found_from_the_located_step():
    """The measured steps have no shapes. The line is the one that calls the layer."""
    events = steps_of(select(0))
    bare = [event if event["ts"] < STEP else {**event, "args": {}} for event in events]
    sites = (CallSite("model.py", 12, "Model.forward", "logits = self.head(x)"),)
    (found,) = find(facts_of([*bare, mark(0, 8, 105)], callsites=sites))
    assert found.count == 1
    assert len(found.rows) == 3


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::linear", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, discarded_logits.needs)
