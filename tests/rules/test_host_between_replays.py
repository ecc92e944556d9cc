"""Replays of graphs with the host in between, and gaps that have other reasons."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.host_between_replays import host_between_replays
from profkit.rules.launch_bound import launch_bound
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, op, python, runtime

Json = dict[str, Any]


def find(events: list[Json]) -> list[Suspicion]:
    return list(host_between_replays.check(facts_of(events)))


def serving(
    between_us: float,
    count: int = 6,
    launch: str = "cudaGraphLaunch",
    frames: tuple[tuple[str, float], ...] = (),
    name: str = "execute_context_0(0)_generation_8(8)",
    syncs: bool = True,
) -> list[Json]:
    """Steps whose graph works 600 µs, begun 40 µs after the launch; the host waits for it, and launches the next after
    ``between_us``. The frames, with their part of that time, lie in it."""
    events: list[Json] = []
    for number in range(count):
        at = (650 + between_us) * number
        events += [
            annotation(name, at, 30),
            runtime(launch, at + 5, 20, correlation=number + 1),
            kernel("gemm", at + 45, 400, correlation=number + 1),
            kernel("attention", at + 445, 200, correlation=number + 1),
        ]
        events += [runtime("cudaStreamSynchronize", at + 40, 608)] if syncs else []
        begin = at + 650
        for frame, share in frames:
            events.append(python(frame, begin, between_us * share))
            begin += between_us * share
    return events


def test_the_host_between_two_replays():
    """40 µs of each gap are the way of the launch to the device."""
    (found,) = find(serving(400))
    assert found.evidence["idle_ns_each"] == 450_000
    assert found.evidence["idle_fraction"] == pytest.approx(1 - 600 / 1050, abs=0.02)
    assert "Between 6 replays of graphs the device idles 450 µs each time" in found.message
    assert "--async-scheduling" in found.fix
    assert predict_saving(facts_of(serving(400)), found.edit).fraction == pytest.approx(400 / 1050, abs=0.06)


def test_it_names_what_the_host_does():
    frames = (
        ("vllm/v1/core/sched/scheduler.py(12): schedule", 0.5),
        ("vllm/v1/sample/sampler.py(3): forward", 0.3),
        ("vllm/x.py(1): tidy", 0.05),
    )
    (found,) = find(serving(2000, frames=frames))
    assert "while the host schedules (schedule, 50 %), samples (forward, 30 %)." in found.message
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("vllm/v1/core/sched/scheduler.py", 12)
    assert [place.line for place in found.also] == [3]


@pytest.mark.parametrize(("between_us", "reported"), [(30, 1), (5, 0)])
def test_a_tenth_of_the_step_is_the_least(between_us, reported):
    assert len(find(serving(between_us))) == reported


def test_a_program_without_an_engine_that_replays_graphs():
    (found,) = find(serving(400, name="decode 1"))
    assert "Launch the next replay before" in found.fix


def test_a_pause_without_requests_is_not_the_hosts():
    frames = (("scheduler.py(12): schedule", 0.5),)
    late = [{**event, "ts": event["ts"] + 90_000, "args": dict(event["args"])} for event in serving(400, frames=frames)]
    for event in late:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 100
    (found,) = find(serving(400, frames=frames) + late)
    assert found.evidence["idle_ns_each"] == pytest.approx(450_000, rel=0.2)
    assert "schedules (schedule, " in found.message


def test_graphs_of_pieces_of_a_step():
    """Four graphs of 100 µs in each step, with the host's launch of attention in between."""
    events: list[Json] = []
    for number in range(5):
        at = 800 * number
        events.append(annotation("execute_context_0(0)_generation_8(8)", at, 780))
        for piece in range(4):
            correlation = 10 * number + piece + 1
            events += [
                runtime("cudaGraphLaunch", at + 10 + 195 * piece, 10, correlation=correlation),
                kernel("gemm", at + 30 + 195 * piece, 100, correlation=correlation),
            ]
    (found,) = find(events)
    assert found.evidence["inside_steps"] == pytest.approx(15 / 19, abs=0.05)
    assert found.fix.startswith("Capture the whole step as one graph")


def test_two_replays_are_too_few():
    assert find(serving(400, count=2)) == []


def test_kernels_launched_one_by_one_are_of_other_rules():
    assert find(serving(400, launch="cudaLaunchKernel")) == []


def test_a_launch_far_ahead_is_silent():
    """The next replay is queued while the one before works: the host is never in the way."""
    events: list[Json] = []
    for number in range(6):
        events += [
            annotation("step[DECODE bs=8]", 600 * number, 500),
            runtime("cudaGraphLaunch", 600 * number + 5, 20, correlation=number + 1),
            kernel("gemm", 602 * number + 45, 600, correlation=number + 1),
        ]
    assert find(events) == []


def test_work_that_was_not_recorded_is_not_the_hosts():
    """The replay was launched at once and its work begins late: the device waits for something else."""
    events: list[Json] = []
    for number in range(6):
        events += [
            annotation("step[DECODE bs=8]", 1000 * number, 950),
            runtime("cudaGraphLaunch", 1000 * number + 5, 20, correlation=number + 1),
            kernel("gemm", 1000 * number + 400, 600, correlation=number + 1),
        ]
    assert find(events) == []


def test_launch_bound_leaves_replayed_steps_to_this_rule():
    events = serving(1200)
    for number in range(6):
        for small in range(25):
            at = 1850 * number + 660 + 40 * small
            correlation = 1000 + 100 * number + small
            events += [
                op("aten::add", at, 30),
                runtime("cudaLaunchKernel", at + 5, 5, correlation=correlation),
                kernel("k", at + 12, 3, correlation=correlation),
            ]
    for number in range(6):
        events += [kernel("k", 1850 * number + 45 + 20 * i, 20, correlation=number + 1) for i in range(30)]
    facts = facts_of(events)
    assert list(launch_bound.check(facts)) == []
    assert len(list(host_between_replays.check(facts))) == 1


def test_a_recording_that_does_not_tell_launches_cannot_be_judged():
    with pytest.raises(CannotLook, match="which call launched which kernel"):
        find([annotation("step[DECODE bs=8]", 0, 50), kernel("gemm", 1, 5)])


def test_without_a_device():
    facts = facts_of([op("aten::add", 0, 5)])
    assert Need.DEVICE in missing_needs(facts, host_between_replays.needs)
