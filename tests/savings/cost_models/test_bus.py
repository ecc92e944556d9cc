"""How fast pinned memory is sent: by the recording's own copies, else by the GPU's link."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.run.whole_run import DeviceUse, RunAccount
from profkit.savings.cost_models.bus import _LINKS, host_link, slow_link
from profkit.savings.cost_models.devices import _SHEETS
from tests.rules.transferring import PAGEABLE, PINNED, TO_PINNED, computed, sent, stepped
from tests.traces import facts_of

MIB = 1 << 20


def link(*parts, device: str = "", to_device: bool = True):
    properties = {"deviceProperties": [{"name": device}]} if device else {}
    return host_link(facts_of(stepped(computed(0), *parts), **properties), to_device)


@pytest.mark.parametrize(
    ("device", "gigabytes"),
    [
        ("Tesla V100-SXM2-16GB", 15.75),
        ("NVIDIA A100-SXM4-80GB", 31.5),
        ("NVIDIA GeForce RTX 4090", 31.5),
        ("NVIDIA H100 80GB HBM3", 63.0),
        ("NVIDIA GH200 480GB", 450.0),
        ("AMD Instinct MI300X OAM", 63.0),
    ],
)
def test_a_link_carries_85_per_cent_of_its_rate(device, gigabytes):
    found = link(device=device)
    assert found.bytes_per_ns == pytest.approx(0.85 * gigabytes)
    assert (found.uncertainty, found.is_measured) == (0.3, False)


def test_every_gpu_with_a_data_sheet_has_a_link():
    assert [sheet.words for sheet in _SHEETS if not sheet.words & set(_LINKS)] == []


def test_of_an_unknown_gpu_little_is_said():
    assert link(device="Some GPU").uncertainty == link().uncertainty == 0.5


def test_pinned_copies_of_a_mebibyte_tell_the_rate():
    copy = sent(20, MIB, PINNED, took=30, copied=20)
    assert link(copy, device="NVIDIA A100-SXM4-80GB").bytes_per_ns == pytest.approx(MIB / 20_000)
    assert link(copy).is_measured


@pytest.mark.parametrize(
    "copy",
    [sent(20, MIB - 1, PINNED, took=30, copied=20), sent(20, MIB, TO_PINNED, took=30, copied=20)],
    ids=["smaller", "the other direction"],
)
def test_other_copies_do_not(copy):
    assert not link(copy).is_measured


def test_it_is_no_slower_than_what_was_copied_from_anywhere():
    assert link(sent(20, MIB, PAGEABLE, took=60, copied=50)).bytes_per_ns == pytest.approx(MIB / 50_000)


def test_a_copy_of_nothing_takes_its_start():
    found = link(device="NVIDIA H100 80GB HBM3")
    assert found.copy_ns(np.array([0, 53_550_000])).tolist() == [1_400, 1_001_400]


A100 = "NVIDIA A100-SXM4-80GB"


def on_machine(*parts, generation: int = 4, lanes: int = 16, name: str = A100):
    devices = (DeviceUse(0, name, link_generation=generation, link_lanes=lanes),)
    events = stepped(computed(0), *parts)
    return facts_of(events, deviceProperties=[{"name": A100}], account=RunAccount(devices=devices))


@pytest.mark.parametrize(
    ("generation", "lanes", "gigabytes"),
    [(4, 16, 31.5), (4, 8, 15.75), (3, 16, 15.75), (5, 16, 31.5), (9, 16, 31.5), (4, 0, 31.5), (4, 64, 31.5)],
)
def test_the_machine_may_have_less_than_the_card(generation, lanes, gigabytes):
    found = host_link(on_machine(generation=generation, lanes=lanes), to_device=True)
    assert found.bytes_per_ns == pytest.approx(0.85 * gigabytes, rel=1e-3)


def test_another_card_of_the_machine_tells_nothing():
    assert host_link(on_machine(lanes=1, name="NVIDIA T4"), to_device=True).bytes_per_ns == pytest.approx(0.85 * 31.5)


@pytest.mark.parametrize(("copied_us", "told"), [(97.8, False), (98.0, True)])
def test_pinned_copies_far_below_the_link_are_told(copied_us, told):
    """A mebibyte in 97.9 µs is two fifths of 0.85 of 31.5 GB/s."""
    copy = sent(20, MIB, PINNED, took=110, copied=copied_us)
    assert bool(slow_link(on_machine(copy), to_device=True)) is told


def test_the_driver_says_what_the_link_has_here():
    copy = sent(20, MIB, PINNED, took=210, copied=200)
    assert "it has 3.94 GB/s here" in slow_link(on_machine(copy, lanes=2), to_device=True)
    assert "fewer lanes, or is shared" in slow_link(on_machine(copy), to_device=True)
