"""Patience is wall time, less what the waiting thread waited for a busy CPU."""

from __future__ import annotations

import pytest

from profkit.collect.machine import patience
from profkit.collect.machine.patience import Patience


@pytest.mark.parametrize(
    ("wall_s", "crowded_s", "is_over"),
    [(30.0, 0.0, False), (30.1, 0.0, True), (100.0, 80.0, False), (100.0, 60.0, True), (31.0, None, True)],
)
def test_others_on_the_machine_do_not_use_it_up(wall_s, crowded_s, is_over, monkeypatch):
    """A thread that had waited for 5 s before; None: the system does not say."""
    now, crowded_ns = 100.0, 5 * 10**9
    monkeypatch.setattr(patience.time, "monotonic", lambda: now)
    monkeypatch.setattr(patience, "count_crowded_ns", lambda *_: crowded_ns)
    waiting = Patience(30.0)
    now += wall_s
    crowded_ns = None if crowded_s is None else crowded_ns + int(crowded_s * 1e9)
    assert waiting.is_over() is is_over
