"""Setups that tests of recordings share."""

from __future__ import annotations

import pytest


@pytest.fixture
def calls_are_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prologue ends at once, and nothing that other tests compiled or trained keeps calls from being steps."""
    monkeypatch.setattr("profkit.collect.recorder.prologue.GROWTH_BYTES", -1)
    monkeypatch.setattr("profkit.collect.boundaries.forwards._was_compiled", lambda: False)
    monkeypatch.setattr("profkit.collect.boundaries.forwards._given_to_compiler", tuple)
    monkeypatch.setattr("profkit.collect.boundaries.accumulation.Accumulation._look", lambda _: (None, None))
