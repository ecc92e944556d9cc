"""Models that are replicated on several GPUs in each forward pass, and wrappers that replicate nothing."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.data_parallel import data_parallel
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
STEP = 1000
ANOTHER = 3
"""The process id of the second device; 0 is the first device and 1 the host."""
RANGE = "DataParallel.forward"
UNGATHERS = "autograd::engine::evaluate_function: GatherBackward"


def find(facts) -> list[Suspicion]:
    return list(data_parallel.check(facts))


def launched(at: float, number: int, device: int = 0, tid: int = 1, name: str = "gemm") -> list[Json]:
    """A launch of 5 µs. Its kernel starts 10 µs after it and takes 8."""
    work = kernel(name, at + 15, 8, correlation=number)
    return [runtime("cudaLaunchKernel", at, 5, correlation=number, tid=tid), {**work, "pid": device}]


def forward(number: int, *, name: str = RANGE, gradients: bool = True, second: int = ANOTHER) -> list[Json]:
    """A forward pass of 600 µs: the inputs are scattered until 40 µs and the model is replicated until the threads
    launch their first kernels at 250. They launch the last at 500, and the outputs are gathered from 520 to 560."""
    events = [annotation(name, 0, 600), op("Scatter", 10, 30), *launched(20, number)]
    events += [op("Broadcast", 50, 100)] if gradients else []
    events += launched(60, number + 1, name="ncclDevKernel_Broadcast")
    events += launched(80, number + 2, second, name="ncclDevKernel_Broadcast")
    for at in (250, 400, 495):
        events += [*launched(at, number + at, tid=11), *launched(at + 5, number + at + 1, second, tid=12)]
    return [*events, op("Gather", 520, 40), *launched(530, number + 3)]


def rest(number: int, gathered: bool = True) -> list[Json]:
    """The loss, the backward pass on its own thread, which spends 20 µs on the gathering, and the optimizer."""
    events = [op("aten::mse_loss", 610, 40), *launched(620, number + 4)]
    events += [op(UNGATHERS, 700, 20, tid=21), *launched(705, number + 5, tid=21)] if gathered else []
    events += [op("autograd::engine::evaluate_function: MmBackward0", 720, 100, tid=21)]
    events += launched(730, number + 6, tid=21)
    return [*events, annotation("Optimizer.step#SGD.step", 850, 100), *launched(900, number + 7)]


def steps_of(make, count: int = 4) -> list[Json]:
    return [
        {**event, "ts": event["ts"] + STEP * i}
        for i in range(count)
        for event in (step(i, 0, STEP), *make(1000 * i + 1))
    ]


def replicated(number: int, **how: Any) -> list[Json]:
    return [*forward(number, **how), *rest(number)]


def test_replicating_gathering_and_a_quarter_of_the_threads_time_are_saved():
    facts = facts_of(steps_of(replicated))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, RANGE)
    assert found.evidence == {"devices": 2, "replicating_ns_per_step": 210_000, "threads_ns_per_step": 270_000}
    assert found.message == (
        "DataParallel copies the model to 2 GPUs once a step, which takes 210 µs of the host's time. The copies run "
        "in threads that share Python's lock, 270 µs."
    )
    # A quarter of the 270 µs in two threads, which is half of what a single thread would save, and the gathering's
    # 40 µs forward and 20 µs backward.
    assert predict_saving(facts, found.edit).fraction == pytest.approx((210 + 67.5 + 40 + 20) / STEP, abs=0.005)
    gone = [facts.trace.name_of(int(row)) for row in found.edit.work]
    assert sorted(gone) == 8 * ["gemm"] + 8 * ["ncclDevKernel_Broadcast"]  # in four steps, forward and backward


def test_without_gradients_the_replicating_time_is_the_same():
    facts = facts_of(steps_of(lambda number: [*forward(number, gradients=False), *launched(700, number + 9)]))
    (found,) = find(facts)
    assert found.evidence["replicating_ns_per_step"] == 210_000


def test_without_recorded_thread_calls_replication_ends_with_the_broadcast():
    def unseen(number: int) -> list[Json]:
        return [event for event in replicated(number) if event["tid"] not in (11, 12)]

    (found,) = find(facts_of(steps_of(unseen)))
    assert found.evidence["replicating_ns_per_step"] == 110_000


def test_a_thread_that_launches_nothing_does_not_run_a_replica():
    """For example the thread that pins the batches of a DataLoader."""

    def pinned(number: int) -> list[Json]:
        return [*replicated(number), runtime("cudaHostAlloc", 100, 20, tid=13)]

    (found,) = find(facts_of(steps_of(pinned)))
    assert found.evidence["replicating_ns_per_step"] == 210_000


def test_the_uncertainty_covers_the_whole_saving_from_the_threads():
    """When the threads cause nearly all of the cost, the uncertainty is nearly the whole saving."""

    def quick(number: int) -> list[Json]:
        events = [event for event in forward(number) if event["name"] not in ("Scatter", "Gather")]
        moved = [annotation("Scatter", 0, 1), op("Scatter", 200, 45), op("Gather", 520, 1)]
        return [*events, *moved, *rest(number, gathered=False)]

    (found,) = find(facts_of(steps_of(quick)))
    assert found.edit.uncertainty == pytest.approx(67.5 / (67.5 + 5 + 1), abs=0.01)


def test_a_wrapper_on_one_device_is_silent():
    def alone(number: int) -> list[Json]:
        return [
            annotation(RANGE, 0, 600),
            op("Scatter", 10, 30),
            *launched(20, number),
            *launched(250, number + 1),
            *rest(number, gathered=False),
        ]

    assert find(facts_of(steps_of(alone))) == []


def test_a_forward_pass_with_kernels_on_a_single_device_is_silent():
    assert find(facts_of(steps_of(lambda number: replicated(number, second=0)))) == []


@pytest.mark.parametrize("name", ["DistributedDataParallel.forward", "FullyShardedDataParallel.forward", "my.forward"])
def test_other_wrappers_that_broadcast_are_silent(name):
    """DistributedDataParallel broadcasts buffers but replicates nothing."""
    assert find(facts_of(steps_of(lambda number: replicated(number, name=name)))) == []


def test_two_devices_without_replication_are_silent():
    """A model whose layers are on two devices, in a wrapper of the same name."""

    def pipelined(number: int) -> list[Json]:
        return [event for event in replicated(number) if event["name"] not in ("Broadcast", "Gather")]

    assert find(facts_of(steps_of(pipelined))) == []


def test_devices_that_are_busy_all_the_time_are_silent():
    """Kernels launched earlier and one kernel as long as the step keep both devices busy, so the host's time costs
    nothing."""

    def busy(number: int) -> list[Json]:
        host = [event for event in replicated(number) if event["pid"] == 1]
        works = [
            {**kernel("gemm", 275, STEP, correlation=number + 250 + which, stream=8), "pid": device}
            for which, device in enumerate((0, ANOTHER))
        ]
        return [*host, *works]

    before = [runtime("cudaLaunchKernel", -20, 5, correlation=90_000 + device) for device in (0, ANOTHER)]
    before += [
        {**kernel("gemm", -10, 285, correlation=90_000 + device, stream=8), "pid": device} for device in (0, ANOTHER)
    ]
    events = [{**event, "ts": event["ts"] + 20} for event in (*before, *steps_of(busy))]
    assert find(facts_of(events)) == []


@pytest.mark.parametrize(("steps", "reported"), [(2, 1), (1, 0)])
def test_replication_in_fewer_than_half_of_the_steps_is_silent(steps, reported):

    def some(number: int) -> list[Json]:
        return replicated(number) if number < 1000 * steps else rest(number)

    assert len(find(facts_of(steps_of(some)))) == reported


def test_the_reported_line_calls_the_model():
    sites = (CallSite("train.py", 7, "train"), CallSite("train.py", 8, "train"))
    lines = [mark(0, -2, 605), mark(1, 690, 140)]
    located = [{**event, "ts": event["ts"] + 2} for event in (*lines, step(0, -2, STEP), *replicated(1))]
    later = [{**event, "ts": event["ts"] + STEP + 2} for event in steps_of(lambda number: replicated(number + 1000), 3)]
    (found,) = find(facts_of([*located, *later], callsites=sites))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 7)


def test_without_device_work_it_cannot_look():
    host = [event for event in steps_of(replicated) if event["pid"] == 1]
    assert missing_needs(facts_of(host), data_parallel.needs) == [Need.DEVICE]
