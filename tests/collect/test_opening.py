"""The opening: whether it was the recording or the program that made the process grow."""

from __future__ import annotations

import pytest

from profkit.collect.opening import Opening


@pytest.mark.parametrize(
    ("was_full", "events", "by_events"), [(True, 50_000, True), (True, 49_999, False), (False, 50_000, False)]
)
def test_an_opening_of_few_events_was_filled_by_the_programs_own_tensors(
    was_full: bool, events: int, by_events: bool
) -> None:
    opening = Opening.__new__(Opening)  # what it was is all that counts
    opening.was_full, opening.events = was_full, events
    assert opening.was_filled_by_events is by_events
