"""Convolutions that try kernels in each step, those that could gain from a trial, and waits that are no trial."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.cudnn_benchmark_mismatch import cudnn_benchmark_mismatch
from profkit.run.directory import CallSite, Run
from profkit.run.experiment import Answer, Measurement
from profkit.savings.replay import replay
from tests.traces import facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]
WEIGHT = [64, 3, 7, 7]
SETTINGS = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
UNTRIED = {"cudnn_benchmark": False, "cudnn_deterministic": False}


def find(facts: Facts) -> list[Suspicion]:
    return list(cudnn_benchmark_mismatch.check(facts))


def outer(at: float, duration: float, size: int) -> Json:
    dims = [[8, 3, size, size], WEIGHT, []]
    return op("aten::conv2d", at, duration, dims=dims, types=["float", "float"], concrete=SETTINGS)


def trying(at: float, number: int, size: int = 32) -> list[Json]:
    """A convolution that tries two kernels of 200 µs, waits for each, and then runs one of 100 µs."""
    first = 10 * number
    return [
        outer(at, 500, size),
        op("aten::cudnn_convolution", at + 1, 498),
        runtime("cudaLaunchKernel", at + 5, 5, correlation=first + 1),
        kernel("slow_fprop", at + 10, 200, correlation=first + 1),
        runtime("cudaEventSynchronize", at + 12, 200),
        runtime("cudaLaunchKernel", at + 220, 5, correlation=first + 2),
        kernel("fast_fprop", at + 225, 200, correlation=first + 2),
        runtime("cudaEventSynchronize", at + 227, 200),
        runtime("cudaLaunchKernel", at + 440, 5, correlation=first + 3),
        kernel("fast_fprop", at + 445, 100, correlation=first + 3),
    ]


def untried(at: float, number: int, size: int = 32, name: str = "fast_fprop", us: float = 100) -> list[Json]:
    launch = 10 * number + 3
    return [
        outer(at, 30, size),
        op("aten::cudnn_convolution", at + 1, 28),
        runtime("cudaLaunchKernel", at + 5, 5, correlation=launch),
        kernel(name, at + 12, us, correlation=launch),
    ]


def recording(*steps: list[Json], run: Run | None = None, **more: Any) -> Facts:
    """Steps of 1000 µs with the events of ``steps``. The host waits for their kernels outside any operator."""
    moved = [{**event, "ts": event["ts"] + 1000 * i} for i, events in enumerate(steps) for event in events]
    begin = [max(event["ts"] + event["dur"] for event in events if event["cat"] == "cpu_op") + 5 for events in steps]
    ends = [runtime("cudaDeviceSynchronize", 1000 * i + at, 600 - at) for i, at in enumerate(begin)]
    return facts_of([*(step(i, 1000 * i, 1000) for i in range(len(steps))), *moved, *ends], run=run, **more)


def test_everything_up_to_the_last_wait_inside_a_convolution_is_saved():
    """The saving is 426 µs of the host and both tried kernels. The kernel that is chosen in the end is kept."""
    facts = recording(*(trying(10, i, 32 + i) for i in range(4)))
    (found,) = find(facts)
    assert found.edit is not None
    assert (found.edit.span_end_ns - found.edit.span_start_ns).tolist() == [426_000] * 4
    assert [facts.trace.name_of(row) for row in found.edit.work.tolist()] == ["slow_fprop", "fast_fprop"] * 4
    assert len(found.edit.waits) == 8
    assert (found.count, found.spent_ns, found.kind) == (1, 426_000, None)
    assert replay(facts, found.edit).fraction == pytest.approx(0.43, abs=0.02)
    assert "benchmark = False" in found.fix


@pytest.mark.parametrize(("times", "reported"), [(2, 1), (1, 0)])
def test_trials_in_fewer_than_half_of_the_steps_are_silent(times, reported):
    steps = [trying(10, i) if i < times else untried(10, i) for i in range(4)]
    assert len(find(recording(*steps))) == reported


def test_a_wait_outside_the_convolution_is_silent():
    beside = [[*untried(10, i), runtime("cudaStreamSynchronize", 50, 70)] for i in range(4)]
    assert find(recording(*beside)) == []


def test_a_wait_in_a_hook_inside_the_convolution_is_silent():
    """`item` waits for its copy here, called by a function of the program from a hook inside `conv2d`."""
    inside = [[outer(10, 400, 32), op("aten::item", 20, 300), runtime("cudaStreamSynchronize", 30, 250)]] * 4
    assert find(recording(*inside, run=Run())) == []


def test_waits_while_the_allocator_frees_memory_are_silent():
    freed = [[*trying(10, i), runtime("cudaFree", 240, 50)] for i in range(4)]
    assert find(recording(*freed)) == []


def test_a_single_wait_in_a_convolution_is_silent():
    first, second = (i for i, event in enumerate(trying(10, 0)) if "Synchronize" in event["name"])
    once = [[event for at, event in enumerate(trying(10, i)) if at != second] for i in range(4)]
    assert first < second
    assert find(recording(*once)) == []


def test_trials_in_the_backward_pass_are_reported():
    backward = [
        [
            {**event, "name": event["name"].replace("aten::cudnn_convolution", "aten::convolution_backward")}
            for event in trying(10, i)
        ]
        for i in range(4)
    ]
    assert len(find(recording(*backward))) == 1


def test_the_reported_line_calls_the_convolution():
    sites = (CallSite("net.py", 7, "forward", "x = self.conv(x)"),)
    facts = recording([mark(0, 8, 560), *trying(10, 0)], *(trying(10, i) for i in (1, 2, 3)), callsites=sites)
    (found,) = find(facts)
    assert found.location is not None
    assert found.location.line == 7


def test_untried_convolutions_of_constant_size_are_measured():
    facts = recording(*(untried(10, i, us=400) for i in range(4)), run=Run(flags=UNTRIED))
    (found,) = find(facts)
    assert (found.edit, found.kind) == (None, Kind.OPPORTUNITY)
    assert found.trial is not None
    assert (found.trial.experiment.kind, found.trial.experiment.backward) == ("cudnn-benchmark", False)
    unmeasured = diagnose(facts)
    assert "--measure" in unmeasured.skipped["cudnn-benchmark-mismatch"]
    measured = diagnose(facts, lambda _, asked: [Answer(Measurement(0.5, 0.4, 0.6, 400_000, 200_000))] * len(asked))
    assert "cudnn-benchmark-mismatch" in [finding.rule for finding in measured.findings]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({**UNTRIED, "cudnn_benchmark": True}, id="they have been tried"),
        pytest.param({**UNTRIED, "cudnn_deterministic": True}, id="the program wants the same digits each time"),
        pytest.param({}, id="no setting is known"),
    ],
)
def test_convolutions_are_silent_when_the_settings_rule_a_trial_out_or_are_unknown(flags):
    assert find(recording(*(untried(10, i, us=400) for i in range(4)), run=Run(flags=flags))) == []


def test_untried_convolutions_of_changing_size_are_silent():
    assert find(recording(*(untried(10, i, 32 + i, us=400) for i in range(4)), run=Run(flags=UNTRIED))) == []


def test_one_step_does_not_tell_whether_sizes_stay_the_same():
    with pytest.raises(CannotLook, match="one step was recorded"):
        find(recording(untried(10, 0, us=400), run=Run(flags=UNTRIED)))
    assert find(recording(untried(10, 0, us=30), run=Run(flags=UNTRIED))) == []


@pytest.mark.parametrize(("us", "reported"), [(400, 1), (30, 0)])
def test_untried_convolutions_below_a_tenth_of_the_step_are_silent(us, reported):
    assert len(find(recording(*(untried(10, i, us=us) for i in range(4)), run=Run(flags=UNTRIED)))) == reported


def test_it_cannot_look_at_convolutions_with_channels_last():
    name = "sm80_xmma_fprop_implicit_gemm_f16f16_nhwckrsc_nhwc_tilesize128x128x64"
    with pytest.raises(CannotLook, match="channels last"):
        find(recording(*(untried(10, i, name=name, us=400) for i in range(4)), run=Run(flags=UNTRIED)))


def test_without_a_device_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::conv2d", 10, 60)])
    assert Need.DEVICE in missing_needs(facts, cudnn_benchmark_mismatch.needs)
