"""A device that idles because launches come too slowly, and devices that idle for other reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.diagnosis.pipeline import read_facts
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.launch_bound import launch_bound
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, busy_fraction, facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]


def find(facts) -> list[Suspicion]:
    return list(launch_bound.check(facts))


def launches(
    count: int,
    interval_us: float,
    kernel_us: float,
    at: float = 0,
    delay_us: float = 5,
    call_us: float = 4,
    number: int = 0,
) -> list[Json]:
    """Operators at equal distances, each with a kernel that starts when it is launched and the one before is over."""
    events, free = [], 0.0
    for i in range(count):
        call = at + i * interval_us
        start = max(call + delay_us, free)
        free = start + kernel_us
        correlation = 1000 * number + i + 1
        events += [
            op("aten::add", call - 0.5, interval_us - 1),
            runtime("cudaLaunchKernel", call, call_us, correlation=correlation),
            kernel("k", start, kernel_us, correlation=correlation),
        ]
    return events


def stepped(part: Callable[[float, int], list[Json]], length: float, steps: int = 3) -> list[Json]:
    return [event for i in range(steps) for event in (step(i, length * i, length), *part(length * i, i))]


def test_short_kernels_far_apart_idle_the_device():
    """40 launches, 50 µs apart, of kernels of 10 µs: back to back, with a delay of 5 µs each, they take 15 µs each."""
    facts = facts_of(stepped(lambda at, i: launches(40, 50, 10, at + 1, number=i), 2000))
    (found,) = find(facts)
    assert found.count == 40
    assert found.evidence["idle_fraction"] == pytest.approx(1 - (10 + 1.5) / 50, abs=0.01)  # 1.5 µs between kernels
    assert found.evidence["launch_interval_ns"] == 50_000
    assert found.evidence["kernel_ns"] == 10_000
    assert predict_saving(facts, found.edit).fraction == pytest.approx(1 - 15 / 50, abs=0.1)


def test_the_line_is_the_one_whose_operators_launch_most():
    sites = tuple(CallSite("train.py", line, "main") for line in range(4))
    first = [step(0, 0, 2000), mark(3, 0, 1900), *launches(38, 50, 10, 1, number=9)]
    later = [
        {**event, "ts": event["ts"] + 2000}
        for event in stepped(lambda at, i: launches(38, 50, 10, at + 1, number=i), 2000)
    ]
    (found,) = find(facts_of([*first, *later], callsites=sites))
    assert found.location is not None
    assert found.location.line == 3


def counted(waits: int, name: str = "aten::nonzero") -> list[Suspicion]:
    """40 short kernels a step, the host waiting at equal distances for sizes or, in other operators, for something
    else. Each wait is short, as the device has nothing else to do."""

    def part(at: float, number: int) -> list[Json]:
        events = launches(40, 50, 10, at + 1, number=number)
        for i in range(waits):
            begin = at + 30 + 50 * (40 // waits) * i
            events += [op(name, begin, 10), runtime("cudaStreamSynchronize", begin + 1, 8)]
        return events

    return find(facts_of(stepped(part, 2000)))


def test_between_two_waits_for_a_size_no_graph_can_hold_the_launches():
    (whole,), (one,), (two,) = counted(1, "aten::to"), counted(1), counted(2)
    assert one.evidence["idle_fraction"] == whole.evidence["idle_fraction"]
    assert two.evidence["idle_fraction"] == pytest.approx(one.evidence["idle_fraction"] / 2, rel=0.1)
    assert counted(20) == []
    (other,) = counted(20, "aten::to")
    assert other.evidence["idle_fraction"] > two.evidence["idle_fraction"]


@pytest.mark.parametrize(("kernel_us", "reported"), [(38, 1), (39, 0)])
def test_a_fifth_idle_is_the_least(kernel_us, reported):
    facts = facts_of(stepped(lambda at, i: launches(40, 50, kernel_us, at + 1, number=i), 2000))
    assert len(find(facts)) == reported


def test_a_deep_queue_is_silent():
    assert find(facts_of(stepped(lambda at, i: launches(40, 10, 45, at + 1, number=i), 2000))) == []


def test_a_queue_that_is_mostly_deep_is_silent():
    """The device falls behind by up to 0.6 ms at first; a third of the launches come slowly, when it has caught up."""

    def part(at: float, number: int) -> list[Json]:
        events, free = [], 0.0
        for i in range(90):
            call, length = at + 1 + 10 * i, 40 if i % 3 == 0 else 5
            start = max(call + 5, free)
            free = start + length
            correlation = 10_000 * number + 5000 + i
            events += [
                runtime("cudaLaunchKernel", call, 4, correlation=correlation),
                kernel("k", start, length, correlation=correlation),
            ]
        return [*events, *launches(40, 50, 5, at + 1600, number=number + 20)]

    assert find(facts_of(stepped(part, 3600))) == []


def test_few_launches_say_nothing():
    assert find(facts_of(stepped(lambda at, i: launches(19, 50, 10, at + 1, number=i), 1000))) == []


def test_a_host_that_computes_something_else_is_not_launching():
    """The device idles 4 ms while nothing is launched; around that it is kept busy."""
    facts = facts_of(stepped(lambda at, i: launches(40, 50, 40, at + 1, number=i), 6000))
    assert find(facts) == []


def test_waiting_for_data_is_not_launching():
    """40 of 50 µs busy for 2 ms, then 0.48 ms of waiting before each of four launches."""

    def part(at: float, number: int) -> list[Json]:
        waits = [
            annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 2010 + 500 * k, 480)
            for k in range(4)
        ]
        launched = [
            event for k in range(4) for event in launches(1, 8, 4, at + 2491 + 500 * k, number=10 * number + k + 5)
        ]
        return [*launches(40, 50, 40, at + 1, number=number), *launched, *waits]

    assert find(facts_of(stepped(part, 4010))) == []


def test_a_queue_that_the_host_drained_itself_is_not_counted():
    def part(at: float, number: int) -> list[Json]:
        events = launches(40, 50, 20, at + 1, number=number)
        waits = [runtime("cudaStreamSynchronize", at + 1 + 50 * i + 5, 22) for i in range(40)]
        return [*events, *waits]

    assert find(facts_of(stepped(part, 2000))) == []


def test_launches_that_block_are_a_debug_mode():
    facts = facts_of(stepped(lambda at, i: launches(40, 50, 10, at + 1, call_us=20, number=i), 2000))
    assert find(facts) == []


def test_time_between_the_steps_is_no_idle_time():
    events = [
        event for i in range(3) for event in (step(i, 2900 * i, 2000), *launches(40, 50, 40, 2900 * i + 1, number=i))
    ]
    assert find(facts_of(events)) == []


def test_kernels_without_their_launches_cannot_be_judged():
    with pytest.raises(CannotLook, match="which call launched"):
        find(facts_of([step(0, 0, 100), op("aten::add", 0, 5), kernel("k", 10, 5)]))


def test_without_a_gpu_the_rule_does_not_look():
    assert Need.DEVICE in missing_needs(facts_of([op("aten::add", 0, 5)]), launch_bound.needs)


# Recordings made elsewhere


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("bert_small_h100.json.gz", 0.5),
        ("bert_small_mi300x.json.gz", 0.4),
        ("ddp_resnet_cpu_bound_a100.json.gz", 0.4),
        ("mlp_launch_bound_2080ti.json.gz", 0.4),
        ("part_batch_sweep_a100/batch_2.json", 0.5),
        ("part_batch_sweep_a100/batch_32.json", 0.5),
    ],
)
def test_launch_bound_recordings_are_found(corpus, name, at_least):
    facts = read_facts(corpus / "kineto" / name)
    (found,) = find(facts)
    saved = predict_saving(facts, found.edit).fraction
    assert at_least < saved < 1 - busy_fraction(facts, *facts.steps.window_ns)


@pytest.mark.parametrize(
    "name",
    [
        "part_batch_sweep_a100/batch_128.json",
        "sam_amg_baseline_a100.json.gz",
        "sam_amg_optimised_a100.json.gz",
        "qwen_prefill_h100.json.gz",
        "vllm_graphs_mi300x.json.gz",
        "recsys_eager_a100.json.gz",
        "recsys_graphed_v100.json.gz",
        "resnet_healthy_v100.pt.trace.json.gz",
        "resnet50_workers0_v100.pt.trace.json.gz",
        "resnet50_workers4_v100.pt.trace.json.gz",
    ],
)
def test_recordings_that_idle_for_other_reasons_stay_quiet(corpus, name):
    assert find(read_facts(corpus / "kineto" / name)) == []


def test_in_a_graph_kernels_follow_each_other_sooner_but_none_is_taken_for_half_as_long():
    facts = facts_of(stepped(lambda at, i: launches(40, 50, 2 + 8 * (i % 2), at + 1, number=i), 2000, steps=4))
    (found,) = find(facts)
    assert set(found.edit.work_kept_ns.tolist()) == {1_000, 10_000 - 1_200}


def test_the_line_that_ends_a_graph_is_named():
    """In each step the host reads a number after the 40 launches; its line is known from the located step."""
    sites = tuple(CallSite("src/train.py", line, "main") for line in range(10))

    def read(at: float) -> list[Json]:
        return [op("aten::item", at + 1960, 20), runtime("cudaStreamSynchronize", at + 1965, 10)]

    located = [step(0, 0, 2000), mark(3, 0, 1950), mark(7, 1955, 30), *launches(38, 50, 10, 1, number=9), *read(0)]

    def part(at: float, number: int) -> list[Json]:
        return [*launches(38, 50, 10, at + 1, number=number), *read(at)]

    later = [{**event, "ts": event["ts"] + 2000} for event in stepped(part, 2000)]
    without = [event for event in (*located, *later) if "Synchronize" not in event["name"]]
    (found,), (alike,) = (find(facts_of(events, callsites=sites)) for events in ([*located, *later], without))
    why = "A graph ends where the host waits for the device: first move that out of the step (train.py:7)."
    assert found.fix == f"{alike.fix} {why}"
