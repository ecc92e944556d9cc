"""What a plan says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profkit.plan import Plan


@pytest.mark.parametrize(
    ("wish", "finds"),
    [({}, True), ({"is_rank": True}, False), ({"steps_from": "optimizer"}, False), ({"stops": True}, False)],
)
def test_cycles_are_looked_for_where_nothing_fixes_the_steps(wish: dict[str, Any], finds: bool) -> None:
    assert replace(Plan(), **wish).finds_cycles == finds
