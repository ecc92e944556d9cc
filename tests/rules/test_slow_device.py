"""Clocks below what a device can do, and the reasons that count."""

from __future__ import annotations

import pytest

from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_device import slow_device
from tests.rules.watched import S, device, watched
from tests.traces import facts_of, op, step

HEAT, POWER, IDLE, SETTING = 0x20, 0x04, 0x01, 0x02


def told(**more):
    return list(slow_device.check(watched(devices=(device(busy=0.9, **more),))))


def test_heat_is_told_with_the_clock():
    (found,) = told(clock=1485, reasons=HEAT)
    assert found.message == (
        "GPU 0 (NVIDIA H100) runs 25 % below its highest clock, 1980 MHz, in 100 % of the busy looks. What holds it "
        "back: heat, by its driver."
    )
    assert found.run_ns == pytest.approx(20 * S * 0.25)
    assert found.run_uncertainty == 1.0


@pytest.mark.parametrize(
    ("clock", "reasons", "reported"),
    [(1790, HEAT, 0), (1780, HEAT, 1), (1590, POWER, 0), (1580, POWER, 1), (990, IDLE, 0), (990, SETTING, 0)],
)
def test_each_reason_has_its_least_share(clock, reasons, reported):
    assert len(told(clock=clock, reasons=reasons)) == reported


def test_an_idle_device_has_a_low_clock():
    with pytest.raises(CannotLook, match="no device was seen busy"):
        list(slow_device.check(watched(devices=(device(busy=0.2, clock=345, reasons=HEAT),))))


@pytest.mark.parametrize("more", [{"samples": 9}, {"most": 0}, {"clock": -1}])
def test_too_few_looks_or_no_clock_cannot_be_judged(more):
    with pytest.raises(CannotLook, match="no device was seen busy"):
        told(reasons=HEAT, **more)


@pytest.mark.parametrize("more", [1 << 63, -(1 << 63)])
def test_reasons_with_all_bits_are_read(more):
    (found,) = told(clock=1485, reasons=HEAT + more)
    assert found.evidence["reason"] == "heat, by its driver"


def test_without_looks_it_cannot_look():
    with pytest.raises(CannotLook, match="not installed"):
        list(slow_device.check(watched(no_devices="NVIDIA's management library is not installed here")))
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, slow_device.needs) == [Need.WHOLE_RUN]
