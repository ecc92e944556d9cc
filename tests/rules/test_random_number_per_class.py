"""Draws that take a random number for each class, and draws that do not."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.random_number_per_class import random_number_per_class
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, op, runtime, step

Json = dict[str, Any]
ROWS, CLASSES = 32, 5000
STEP = 10_000


def find(*events: Json, steps: int = 3, steps_with: int = 3) -> list[Suspicion]:
    return list(random_number_per_class.check(facts_of(steps_of(*events, steps=steps, steps_with=steps_with))))


def steps_of(*events: Json, steps: int = 3, steps_with: int = 3) -> list[Json]:
    """Steps of 10 ms, the first ``steps_with`` with these events."""
    found: list[Json] = []
    for i in range(steps):
        found += [step(i, STEP * i, STEP), op("aten::mm", STEP * i + 1, 5)]
        found += [{**event, "ts": event["ts"] + STEP * i} for event in events] * (i < steps_with)
    return found


def draw(
    picked_by: str = "argmax",
    made_by: str = "exponential_",
    lasts: float = 4000,
    shape: tuple[int, ...] = (ROWS, CLASSES),
) -> list[Json]:
    whole = list(shape)
    return [
        op("aten::multinomial", 1000, lasts, dims=[whole, [], [], []], types=["float", "Scalar", "Scalar", ""]),
        op(f"aten::{made_by}", 1001, 0.8 * lasts, dims=[whole], types=["float"]),
        op(f"aten::{picked_by}", 1002 + 0.8 * lasts, 0.1 * lasts, dims=[whole], types=["float"]),
    ]


def test_a_single_draw_keeps_a_twelfth_of_the_call():
    events = steps_of(*draw())
    (found,) = random_number_per_class.check(facts_of(events))
    assert found.message == (
        "1 call a step draws a random number for each of 5,000 classes, to pick a single one: 160,000 numbers at most."
    )
    assert "torch.multinomial(p, 2, replacement=True)[..., :1]" in found.fix
    assert found.evidence == {"classes": CLASSES, "numbers": ROWS * CLASSES}
    assert predict_saving(facts_of(events), found.edit).fraction == pytest.approx(0.4 * 11 / 12, abs=0.001)


def test_several_without_replacement_change_what_is_drawn():
    (found,) = find(*draw(picked_by="topk"))
    assert "to pick several without replacement" in found.message
    assert "`replacement=True` if the same class may come twice" in found.fix
    assert found.confidence < 0.9


def test_a_short_draw_keeps_what_two_calls_take():
    events = steps_of(*draw(lasts=110))
    (found,) = random_number_per_class.check(facts_of(events))
    assert predict_saving(facts_of(events), found.edit).time_ns_per_step == 100_000


@pytest.mark.parametrize(
    "events",
    [
        draw(made_by="cumsum"),
        draw()[1:],
        [*draw(), runtime("cudaLaunchKernel", 1100, 5, correlation=7), kernel("exponential", 1200, 50, correlation=7)],
    ],
    ids=["through the sum of probabilities", "exponentials of the program", "on a device"],
)
def test_other_draws_are_silent(events):
    assert find(*events) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(steps_with, reported):
    assert len(find(*draw(), steps=4, steps_with=steps_with)) == reported


@pytest.mark.parametrize("need", [Need.OPERATORS, Need.SHAPES])
def test_without_operators_or_shapes_the_rule_does_not_look(need):
    facts = facts_of([step(0, 0, 100), kernel("exponential", 10, 40)])
    assert need in missing_needs(facts, random_number_per_class.needs)
