"""What a plan says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profkit.run.plan import Plan


@pytest.mark.parametrize(
    ("wish", "finds"),
    [({}, True), ({"is_rank": True}, False), ({"steps_from": "optimizer"}, False), ({"stops": True}, False)],
)
def test_cycles_are_searched_for_unless_the_steps_are_fixed(wish: dict[str, Any], finds: bool) -> None:
    assert replace(Plan(), **wish).finds_cycles == finds


def test_the_long_step_of_a_cycle_is_located_and_measured_once() -> None:
    plan = Plan().for_long_step(400, 0.7)
    assert (plan.wait, plan.warmup, plan.active, plan.after) == (0, 1, 1, 0)
    assert (plan.one_in, plan.share_of_time, plan.every, plan.finds_cycles) == (400, 0.7, 1, False)
