"""Steps that nobody records end by a quick way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.collect.listening import Listener, make_optimizer


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_steps_that_pass_by_end_by_the_quick_way_alone(listener: Listener) -> None:
    """The first tells which optimizer it is that ends steps; another's steps go neither way."""
    first, second = make_optimizer(), make_optimizer()
    with listener.on():
        first.step()
        listener.lets_pass = True
        for _ in range(3):
            first.step()
            second.step()
        listener.lets_pass = False
        first.step()
    assert (listener.passed, len(listener.ends)) == (3, 2)


def test_an_error_on_the_quick_way_is_met_again_on_the_other(listener: Listener, monkeypatch: Any) -> None:
    def fails() -> bool:
        raise ValueError("broken")

    monkeypatch.setattr(listener, "passes_by", fails)
    optimizer = make_optimizer()
    with listener.on():
        for _ in range(3):
            optimizer.step()
    assert (len(listener.ends), listener.errors) == (3, [])
