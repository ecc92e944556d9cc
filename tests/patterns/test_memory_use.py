"""How much memory there is and how much is in use, by device."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.patterns.memory_use import memory_use, memory_uses
from profkit.run.directory import DeviceMemorySample, LoadSample
from profkit.trace.events import NONE
from tests.traces import facts_of, kernel, memory, op, runtime

DEVICES = [{"id": number, "name": "NVIDIA H100", "totalGlobalMem": size} for number, size in enumerate((1_000, 800))]
WORK = [op("aten::fill_", 0, 5), runtime("cudaLaunchKernel", 1, 1, correlation=1), kernel("fill", 3, 5, correlation=1)]


def test_each_device_has_its_own_peaks_and_the_fullest_one_limits():
    facts = facts_of(
        [
            *WORK,
            memory(4, 100, 1, device_type=1, device=0, held=300, reserved=400),
            memory(5, 100, 2, device_type=1, device=1, held=500, reserved=600),
            memory(6, 8, 3, held=8, reserved=9_000),
        ],
        deviceProperties=DEVICES,
    )
    found = [(use.device, use.total_bytes, use.allocated_bytes, use.reserved_bytes) for use in memory_uses(facts)]
    assert found == [(0, 1_000, 300, 400), (1, 800, 500, 600)]
    assert memory_use(facts).device == 1


def test_figures_of_the_driver_for_one_device_are_not_used_for_several():
    events = [*WORK, *(memory(4, 9, 1, device_type=1, device=one, held=9, reserved=20) for one in (0, 1))]
    facts = facts_of(events, deviceProperties=DEVICES, samples=(LoadSample(0, 1, 0.5, gpu_memory_bytes=700),))
    assert [use.seen_bytes for use in memory_uses(facts)] == [0, 0]


def test_counters_of_the_allocator_show_peaks_that_the_events_miss():
    counted = (DeviceMemorySample(3, 1, 820, 10, 400, 20, 450), DeviceMemorySample(-1, 1, 820, 10, 700, 20, 750))
    facts = Facts(facts_of(WORK, deviceProperties=DEVICES).trace, device_memory=counted)
    (use,) = memory_uses(facts)
    assert (use.device, use.total_bytes, use.allocated_bytes, use.reserved_bytes) == (1, 820, 700, 750)
    assert use.where == "GPU 1"


def test_without_a_device_number_the_smallest_device_is_assumed():
    (use,) = memory_uses(facts_of(WORK, deviceProperties=DEVICES))
    assert (use.device, use.total_bytes, use.is_known, use.where) == (NONE, 800, False, "the GPU")


def test_free_room_is_what_neither_tensors_nor_other_processes_take():
    """The allocator caches 300 bytes, and other processes take 50."""
    facts = facts_of(
        [*WORK, memory(4, 100, 1, device_type=1, held=300, reserved=600)],
        deviceProperties=DEVICES[:1],
        samples=(LoadSample(0, 1, 0.5, gpu_memory_bytes=650),),
    )
    use = memory_use(facts)
    assert use.used_bytes == 350
    assert use.has_room_for(500)
    assert not use.has_room_for(501)


def test_a_memory_limit_of_the_process_is_its_whole_room():
    """`torch.cuda.set_per_process_memory_fraction(0.5)`."""
    counted = (DeviceMemorySample(3, 0, 1_000, 10, 300, 20, 400, limit_bytes=500),)
    trace = facts_of(WORK, deviceProperties=DEVICES[:1]).trace
    samples = (LoadSample(0, 1, 0.5, gpu_memory_bytes=950),)
    use = memory_use(Facts(trace, samples=samples, device_memory=counted))
    assert (use.total_bytes, use.used_bytes) == (500, 300)
