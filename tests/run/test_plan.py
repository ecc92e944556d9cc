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
