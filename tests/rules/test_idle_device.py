"""GPUs that the program never uses."""

from __future__ import annotations

import pytest

from profkit.rules.base import CannotLook, Need, Severity, missing_needs
from profkit.rules.idle_device import idle_device
from tests.rules.watched import DeviceChoice, device, watched
from tests.traces import facts_of, op, step

GIB = 1 << 30
IDLE, BUSY = device(1), device(0, busy=0.9, used=(0, 4 * GIB))
USING = DeviceChoice(build="13.0", was_initialised=True)


def told(*devices, choice):
    return [found.message for found in idle_device.check(watched(devices=devices, choice=choice))]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (DeviceChoice(build=""), "this PyTorch was built without CUDA"),
        (DeviceChoice(build="13.0", visible=""), "CUDA_VISIBLE_DEVICES hides them all"),
        (DeviceChoice(build="13.0", visible="-1"), "CUDA_VISIBLE_DEVICES hides them all"),
        (DeviceChoice(build="13.0"), "the program never asked for one"),
        (DeviceChoice(), "the program does not use PyTorch"),
    ],
)
def test_a_device_that_nobody_uses_is_told_with_the_reason(choice, why):
    assert told(IDLE, choice=choice) == [f"No kernel was seen on GPU 1 (NVIDIA H100) during the whole run: {why}."]


def test_some_of_several_are_never_used():
    (message,) = told(BUSY, IDLE, device(2), choice=USING)
    assert message == (
        "No kernel was seen on GPUs 1, 2 (NVIDIA H100) during the whole run: the program uses 1 device of 3."
    )
    (found,) = idle_device.check(watched(devices=(BUSY, IDLE), choice=USING))
    assert found.severity is Severity.MEDIUM


@pytest.mark.parametrize("visible", ["0", "GPU-8a56a4bc"])
def test_a_device_that_was_left_out_on_purpose_is_none(visible):
    assert told(BUSY, IDLE, choice=DeviceChoice(visible, "13.0", was_initialised=True)) == []


def test_devices_that_all_ranks_use_are_none():
    assert told(BUSY, device(1, busy=0.4), choice=USING) == []


@pytest.mark.parametrize(("used", "reported"), [((0, 255 << 20), 1), ((0, 256 << 20), 0)])
def test_a_device_with_new_memory_is_in_use(used, reported):
    assert len(told(BUSY, device(1, used=used), choice=USING)) == reported


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"no_devices": "NVIDIA's management library is not installed here"}, "not installed"),
        ({}, "were not looked at"),
        ({"devices": (device(samples=4),)}, "too seldom"),
        ({"devices": (device(busy=-1.0),)}, "does not tell how busy"),
    ],
)
def test_without_looks_it_cannot_look(more, why):
    with pytest.raises(CannotLook, match=why):
        list(idle_device.check(watched(**more)))


def test_without_an_account_it_cannot_look():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, idle_device.needs) == [Need.WHOLE_RUN]
