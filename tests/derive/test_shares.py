"""Where the step's time went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.facts import Facts
from tests.traces import annotation, facts_of, kernel, mark, memcpy, op, pause, runtime, step

SGD = "Optimizer.step#SGD.step"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _shares_us(facts: Facts) -> dict[str, float]:
    return {label: time_ns / 1000 for label, time_ns in facts.shares}


def test_without_a_device_the_main_threads_time_is_shared_out():
    events = []
    for n in range(2):
        at = 100 * n
        events += [
            step(n, at, 100), annotation(LOADER, at + 10, 20), op("aten::stack", at + 12, 9),
            op("aten::mm", at + 40, 10), op("autograd::engine::evaluate_function: MmBackward0", at + 55, 15),
            op("aten::mm", at + 60, 5), annotation(SGD, at + 80, 10), op("aten::add_", at + 82, 5),
            op("aten::mm", at, 100, tid=2),
        ]  # fmt: skip
    assert _shares_us(facts_of(events)) == {
        "waiting for data": 20,
        "optimizer": 10,
        "backward": 15,
        "operators of the forward pass and others": 10,
        "Python and all else between operators": 45,
    }


def test_with_a_device_its_work_comes_first_and_idle_time_is_explained():
    facts = facts_of([
        step(0, 0, 100), op("aten::mm", 1, 5), annotation(LOADER, 10, 20), annotation(SGD, 85, 15),
        kernel("sgemm", 25, 25), kernel("ncclDevKernel_AllReduce", 45, 15, stream=20), memcpy("Memcpy DtoD", 55, 10),
        kernel("sgemm", 90, 30),
    ])  # fmt: skip
    assert _shares_us(facts) == {
        "device: computing": 35,
        "device: communicating, nothing computed meanwhile": 10,
        "device: copying and clearing memory": 5,
        "idle: waiting for data": 15,
        "idle: in the optimizer's step": 5,
        "idle: the host launches, computes or waits": 30,
    }


def test_a_device_busy_with_earlier_work_is_not_idle():
    facts = facts_of([op("aten::mm", 0, 20), runtime("cudaLaunchKernel", 5, 5, correlation=1),
                      kernel("sgemm", 3_010, 90, correlation=1)])  # fmt: skip
    assert _shares_us(facts) == {
        "device: computing": 90,
        "device: at work launched before the recording": 3_000,
        "idle: the host launches, computes or waits": 10,
    }


def test_only_measured_steps_are_shared_out():
    facts = facts_of([step(0, 0, 50), mark(1, 5, 9), op("aten::mm", 6, 5), step(1, 50, 100), op("aten::mm", 60, 30)])
    assert _shares_us(facts) == {
        "operators of the forward pass and others": 30,
        "Python and all else between operators": 70,
    }


def test_profkits_pauses_inside_a_step_are_named():
    facts = facts_of([*(annotation(SGD, at, 1) for at in (0, 100)), pause(20, 30), op("aten::mm", 60, 10)])
    assert _shares_us(facts)["profkit itself, left out of the step"] == 30


_EVENTS = st.lists(
    st.tuples(st.sampled_from(["op", "loader", "optimizer", "backward", "kernel", "nccl", "copy"]), st.integers(0, 300),
              st.integers(0, 90)), max_size=12)  # fmt: skip
_MAKE = {
    "op": lambda at, length: op("aten::mm", at, length),
    "loader": lambda at, length: annotation(LOADER, at, length),
    "optimizer": lambda at, length: annotation("Optimizer.step#Adam.step", at, length),
    "backward": lambda at, length: op("autograd::engine::evaluate_function: MulBackward0", at, length),
    "kernel": lambda at, length: kernel("sgemm", at, length),
    "nccl": lambda at, length: kernel("ncclDevKernel_AllGather", at, length, stream=9),
    "copy": lambda at, length: memcpy("Memcpy DtoH", at, length, stream=11),
}


@given(_EVENTS, st.lists(st.integers(1, 120), min_size=1, max_size=3))
def test_shares_add_up_to_the_step(events, lengths):
    steps = [step(i, sum(lengths[:i]), length) for i, length in enumerate(lengths)]
    facts = facts_of([*steps, *(_MAKE[kind](at, length) for kind, at, length in events)])
    times_ns = [time_ns for _, time_ns in facts.shares]
    assert all(time_ns >= 0 for time_ns in times_ns)
    mean_ns = facts.steps.duration_ns[facts.steps.measured].mean()
    assert sum(times_ns) == pytest.approx(mean_ns, abs=len(times_ns))
