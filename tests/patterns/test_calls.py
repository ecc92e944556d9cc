"""How messages count what a step does."""

from __future__ import annotations

import pytest

from profkit.patterns.calls import in_a_step
from profkit.run.directory import Run
from tests.traces import facts_of, op, step


@pytest.mark.parametrize(
    ("is_part", "told"), [(False, "a step"), (True, "in what was recorded of the step")], ids=["whole steps", "a part"]
)
def test_of_a_step_that_was_cut_off_no_more_is_said_than_was_recorded(is_part, told):
    facts = facts_of([step(0, 0, 100), op("aten::mm", 10, 40)], run=Run(is_part=is_part))
    assert in_a_step(facts) == told
