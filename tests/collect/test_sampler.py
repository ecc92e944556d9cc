"""When the load of the machine is read."""

from __future__ import annotations

import threading

import pytest

from profkit.collect.sampler import Sampler

LONG_S = 30.0
SHORT_S = 0.01


def test_it_is_read_again_and_again() -> None:
    thrice = threading.Event()
    sampler = Sampler(1, SHORT_S)
    sampler.on_tick = lambda: thrice.set() if len(sampler.samples) >= 3 else None
    sampler.start()
    assert thrice.wait(LONG_S)
    sampler.stop()
    times = [sample.time_ns for sample in sampler.samples]
    assert times == sorted(times)


def test_it_is_read_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.collect.sampler._SOON", 0.0)
    sampler = Sampler(1, LONG_S)
    sampler.on_tick = lambda: pytest.fail("nothing is left to look at")
    sampler.start()
    sampler.stop()
    assert len(sampler.samples) == 1


def test_it_is_not_read_where_the_last_reading_was_a_moment_ago() -> None:
    sampler = Sampler(1, LONG_S)
    sampler.start()
    sampler.stop()
    assert sampler.samples == []


@pytest.mark.parametrize(("is_eager", "most_readings"), [(True, 3), (False, 9)])
def test_at_first_it_ticks_more_often_than_it_reads_if_it_is_eager(is_eager: bool, most_readings: int) -> None:
    enough, ticks = threading.Event(), list[int]()
    sampler = Sampler(1, 20 * SHORT_S, is_eager)
    sampler.on_tick = lambda: (ticks.append(len(sampler.samples)), enough.set() if len(ticks) == 9 else None)[1]
    sampler.start()
    assert enough.wait(LONG_S)
    sampler.stop()
    assert ticks[0] == (0 if is_eager else 1)
    assert ticks[8] <= most_readings
