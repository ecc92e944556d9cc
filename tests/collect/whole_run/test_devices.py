"""The looks at devices, through a library that plays NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from profkit.collect.whole_run import devices
from profkit.collect.whole_run.devices import Devices, read_choice
from profkit.run.whole_run import DeviceChoice

S = 1_000_000_000


def handle_by_index(index, handle):
    handle._obj.value = index.value + 1
    return 0


def set_name(handle, name, _size):
    name.value = f"GPU of test {handle.value}".encode()
    return 0


def setter(only_first=False, **values):
    """A function that writes these fields behind its last argument; the second device may not support it."""

    def write(handle, *arguments):
        for field, value in values.items():
            setattr(arguments[-1]._obj, field, value)
        return 3 if only_first and handle.value != 1 else 0

    return write


def count_two(count):
    count._obj.value = 2
    return 0


def fake_nvml(**changes):
    """Two devices; the second one does not tell its load or clock."""
    functions = {
        "nvmlInit_v2": lambda: 0,
        "nvmlDeviceGetCount_v2": count_two,
        "nvmlDeviceGetHandleByIndex_v2": handle_by_index,
        "nvmlDeviceGetName": set_name,
        "nvmlDeviceGetMaxClockInfo": setter(value=1980),
        "nvmlDeviceGetMemoryInfo": setter(total=80, used=5),
        "nvmlDeviceGetUtilizationRates": setter(only_first=True, gpu=75),
        "nvmlDeviceGetClockInfo": setter(only_first=True, value=1500),
        "nvmlDeviceGetCurrentClocksThrottleReasons": setter(value=0x20),
    }
    return SimpleNamespace(**{**functions, **changes})


def test_each_device_has_its_samples():
    looked = Devices(fake_nvml())
    for second in range(5):
        looked.look(second * S)
    first, second = looked.taken()
    assert (first.name, first.total_bytes, first.most_mhz) == ("GPU of test 1", 80, 1980)
    assert [sample.at_ns // S for sample in first.samples] == [2, 3, 4]
    sample = first.samples[0]
    assert (sample.busy, sample.used_bytes, sample.clock_mhz, sample.reasons) == (0.75, 5, 1500, 0x20)
    assert (second.samples[0].busy, second.samples[0].clock_mhz) == (-1.0, -1)
    assert looked.reason == ""


def test_the_link_is_told_where_the_library_knows_it():
    told = {
        "nvmlDeviceGetMaxPcieLinkGeneration": setter(value=4),
        "nvmlDeviceGetMaxPcieLinkWidth": setter(True, value=8),
    }
    looked = Devices(fake_nvml(**told))
    looked.look(3 * S)
    assert [(one.link_generation, one.link_lanes) for one in looked.taken()] == [(4, 8), (4, 0)]
    looked = Devices(fake_nvml())
    looked.look(3 * S)
    assert [(one.link_generation, one.link_lanes) for one in looked.taken()] == [(0, 0), (0, 0)]


def test_a_long_run_keeps_a_bounded_number():
    looked = Devices(fake_nvml())
    for second in range(5000):
        looked.look(second * S)
    (device, _) = looked.taken()
    assert 100 <= len(device.samples) < 240
    assert device.samples[-1].at_ns > 4900 * S


def test_a_short_run_asks_no_driver():
    looked = Devices(fake_nvml())
    looked.look(S)
    assert looked.taken() == ()
    assert "too short" in looked.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nvmlInit_v2": lambda: 9}, "status 9"),
        ({"nvmlDeviceGetCount_v2": lambda count: 0}, "shows no device"),
    ],
)
def test_a_library_without_devices_says_why(change, reason):
    looked = Devices(fake_nvml(**change))
    looked.look(3 * S)
    assert looked.taken() == ()
    assert reason in looked.reason


def test_an_old_library_is_none():
    looked = Devices(SimpleNamespace(nvmlInit_v2=lambda: 0))
    looked.look(3 * S)
    assert looked.taken() == ()


def test_without_the_library_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(devices, "_LIBRARY", "libnothing-of-this-name.so.1")
    looked = Devices()
    looked.look(3 * S)
    assert "not installed" in looked.reason


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (None, DeviceChoice("")),
        (
            SimpleNamespace(
                version=SimpleNamespace(cuda=None, hip=None), cuda=SimpleNamespace(is_initialized=lambda: False)
            ),
            DeviceChoice("", ""),
        ),
        (
            SimpleNamespace(
                version=SimpleNamespace(cuda="13.0", hip=None), cuda=SimpleNamespace(is_initialized=lambda: True)
            ),
            DeviceChoice("", "13.0", was_initialised=True),
        ),
        (SimpleNamespace(), DeviceChoice("")),
    ],
)
def test_the_choice_is_read_without_an_import(monkeypatch, torch, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert read_choice() == expected
