"""The message of an exception, as a plan shows it."""

from __future__ import annotations

import pytest

from profkit.memory_planner.failures import first_line

LONG = "the model has no repeated blocks in a ModuleList or Sequential " * 4


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("one\ntwo", "one"),
        ("", "ValueError"),
        (LONG, f"{LONG[: LONG.rindex(' ', 0, 157)]} ..."),
        ("a" * 300, "a" * 160),
    ],
)
def test_a_message_is_cut_at_a_word(message: str, shown: str) -> None:
    assert first_line(ValueError(message)) == shown
