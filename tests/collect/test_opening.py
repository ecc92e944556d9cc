"""The opening: whether it was the recording or the program that made the process grow."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from profkit.collect.lines import LineTracer
from profkit.collect.opening import Opening
from profkit.collect.tape import Tape
from profkit.collect.usercode import UserFiles


def tensor_that_lived_during(look: Callable[[], object]) -> object:
    """What is left of a local variable of a function that was looked at and is over, but for the garbage collector."""

    def program() -> weakref.ref[torch.Tensor]:
        tensor = torch.ones(8)
        look()
        return weakref.ref(tensor)

    return program()()


@pytest.mark.parametrize("limit_s", [60.0, 0.0])
def test_nothing_of_the_program_lives_longer_because_its_opening_was_looked_at(limit_s: float, tmp_path: Path) -> None:
    """A frame that refers to itself, and to its callers, would wait for the garbage collector with all they hold."""
    tape, tracer = Tape(lambda: None), LineTracer(UserFiles((tmp_path,)))
    opening = Opening(tape, tracer, limit_s, lambda: 0)
    opening.begin()
    try:
        assert tensor_that_lived_during(opening.look_at) is None
    finally:
        opening.close()
        tape.remove()


@pytest.mark.parametrize(
    ("was_full", "events", "by_events"), [(True, 50_000, True), (True, 49_999, False), (False, 50_000, False)]
)
def test_an_opening_of_few_events_was_filled_by_the_programs_own_tensors(
    was_full: bool, events: int, by_events: bool
) -> None:
    opening = Opening.__new__(Opening)  # what it was is all that counts
    opening.was_full, opening.events = was_full, events
    assert opening.was_filled_by_events is by_events
