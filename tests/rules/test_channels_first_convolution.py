"""Convolutions on images with the channels first: measured on a CPU, priced by the transposing kernels on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.channels_first_convolution import channels_first_convolution
from profkit.run.directory import CallSite, Run
from profkit.run.experiment import Answer, Case, Measurement
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, python, rows_named, runtime, step

Json = dict[str, Any]
IMAGE, WEIGHT, RESULT = [8, 3, 32, 32], [16, 3, 3, 3], [8, 16, 32, 32]
SETTINGS = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
FIRST, LAST = "0", "2"


def find(facts) -> list[Suspicion]:
    return list(channels_first_convolution.check(facts))


def convolution(at: float = 10, duration: float = 40, layout: str = FIRST, size: list[int] = RESULT) -> list[Json]:
    """A `conv2d` and, inside oneDNN's convolution, the call that sizes its result."""
    return [
        op("aten::conv2d", at, duration, dims=[IMAGE, WEIGHT, [16]], types=["float"] * 3, concrete=SETTINGS),
        op("aten::mkldnn_convolution", at + 1, duration - 2),
        op("aten::resize_", at + 2, 1, dims=[size, [], []], concrete=["", str(size), layout]),
    ]


def recording(events: list[Json], run: Run | None = None) -> Any:
    """Four steps of 100 µs with these events in each."""
    moved = [{**event, "ts": event["ts"] + 100 * i} for i in range(4) for event in events]
    return facts_of([*(step(i, 100 * i, 100) for i in range(4)), *moved], run=run)


def test_on_a_cpu_the_finding_has_an_experiment_and_no_price():
    facts = recording(convolution())
    (found,) = find(facts)
    assert (found.edit, found.count) == (None, 1)
    assert "--measure" in found.unpriced
    assert found.rows.tolist() == rows_named(facts.trace, "aten::conv2d")
    assert found.trial is not None
    experiment = found.trial.experiment
    shapes = (tuple(IMAGE), tuple(WEIGHT), (16,))
    assert (experiment.kind, experiment.backward) == ("channels-last", False)
    assert experiment.cases == (Case("conv2d", shapes, "float32", 1.0, tuple(SETTINGS), 40_000.0),)
    assert predict_saving(facts, found.trial.edit_of(0.5)).fraction == pytest.approx(0.2)


def test_the_finding_is_reported_only_after_a_measurement_that_shows_a_gain():
    facts = recording(convolution())
    unmeasured = diagnose(facts)
    assert "--measure" in unmeasured.skipped["channels-first-convolution"]
    assert unmeasured.findings == ()
    measured = diagnose(facts, lambda *_: [Answer(Measurement(0.5, 0.4, 0.6, 40_000, 20_000))])
    assert [finding.rule for finding in measured.findings] == ["channels-first-convolution"]
    assert "channels-first-convolution" not in measured.skipped
    slower = diagnose(facts, lambda *_: [Answer(Measurement(35.0, 30.0, 40.0, 40_000, 1_400_000))])
    assert (slower.findings, "channels-first-convolution" in slower.skipped) == ((), False)


def test_pooling_of_the_same_images_is_part_of_the_experiment():
    pooling, table = (
        op("aten::max_pool2d", at, 20, dims=[shape, []], types=["float", ""], concrete=["", "[2, 2]"])
        for at, shape in ((55, RESULT), (77, [16, 32, 32]))
    )
    facts = recording([*convolution(), pooling, table])
    (found,) = find(facts)
    assert found.trial is not None
    assert [case.operator for case in found.trial.experiment.cases] == ["conv2d", "max_pool2d"]
    assert predict_saving(facts, found.trial.edit_of(0.5)).fraction == pytest.approx(0.3)


def test_convolutions_with_channels_last_are_silent():
    assert find(recording(convolution(layout=LAST))) == []


def test_convolutions_are_silent_when_some_have_channels_last():
    assert find(recording([*convolution(), *convolution(55, layout=LAST)])) == []


def test_convolutions_of_unknown_layout_are_silent():
    plain, *_ = convolution()
    assert find(recording([plain])) == []
    assert find(recording(convolution(size=[16]))) == []


@pytest.mark.parametrize(("duration", "reported"), [(10.2, 1), (9.8, 0)])
def test_convolutions_below_a_tenth_of_the_step_are_silent(duration, reported):
    assert len(find(recording(convolution(duration=duration)))) == reported


def test_convolutions_over_sequences_are_silent():
    events = [{**event, "name": event["name"].replace("2d", "1d")} for event in convolution()]
    assert find(recording(events)) == []


def test_it_cannot_look_when_no_convolution_can_be_run_again():
    facts = recording([*convolution(duration=15), op("aten::max_pool2d", 30, 60, dims=[[], [], []])])
    assert len(find(facts)) == 1
    deformed = [
        {**event, "args": {**event["args"], "Input Dims": []}} if event["name"] == "aten::conv2d" else event
        for event in convolution()
    ]
    with pytest.raises(CannotLook, match="cannot be run again"):
        find(recording(deformed))


def test_the_reported_line_runs_the_convolutions():
    sites = (CallSite("net.py", 7, "forward", "x = self.conv(x)"),)
    first = [step(0, 0, 100), mark(0, 5, 80), *convolution()]
    later = [{**event, "ts": event["ts"] + 100 * i} for i in (1, 2) for event in convolution()]
    facts = facts_of([*first, step(1, 100, 100), step(2, 200, 100), *later], callsites=sites)
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("net.py", 7)


BATCH = "nchwToNhwcKernel<batch>"


def transposing(
    name: str, duration: float = 20, times: int = 4, alone: int = 0, around: tuple[Json, ...] = (), **more: Any
) -> Any:
    """Steps of 100 µs whose kernels the host waits for. In the first ``times`` steps a kernel called ``name`` and one
    that transposes the batch run before the convolution's kernel. ``alone`` convolutions without them follow."""
    events: list[Json] = []
    for i in range(4):
        at = 100 * i
        before = [(BATCH, 1.0), (name, duration)] if i < times else [("other", 1.0 + duration)]
        events += [step(i, at, 100), op("aten::conv2d", at + 5, 1)]
        events += [{**event, "ts": event["ts"] + at} for event in around if event["cat"] == "python_function" or not i]
        begin = at + 8.0
        for k, (of_one, took) in enumerate([*before, ("conv", 40.0)]):
            launch = 10 * i + k + 1
            events += [
                runtime("cudaLaunchKernel", at + 5.1 + 0.1 * k, 0.05, correlation=launch),
                kernel(of_one, begin, took, correlation=launch),
            ]
            begin += took
        events += [op("aten::conv2d", at + 6.2 + k, 0.8) for k in range(alone)]
        events += [runtime("cudaDeviceSynchronize", at + 20, begin - at - 19)]
    return facts_of(events, **more)


@pytest.mark.parametrize(
    "name",
    [
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float>(float*)",
        "nhwcToNchwKernel",
        "batched_transpose_32x32_dword",
        "void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(float, float const*)",
    ],
)
def test_on_a_gpu_the_transposing_kernels_are_saved_except_the_one_for_the_batch(name):
    facts = transposing(name)
    (found,) = find(facts)
    assert (found.count, found.unpriced) == (2, "")
    assert found.edit is not None
    assert found.edit.work.tolist() == rows_named(facts.trace, name)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.2, abs=0.01)


def model_lines() -> tuple[tuple[CallSite, ...], tuple[Json, ...]]:
    """The lines of the located step: `train` calls the model, and the model's `forward` calls the convolution."""
    sites = (CallSite("a.py", 3, "train", "y = model(x)"), CallSite("a.py", 9, "Net.forward", "x = self.conv(x)"))
    return sites, (mark(0, 4, 12), mark(1, 4.9, 1.2))


@pytest.mark.parametrize(
    ("alone", "line"),
    [
        pytest.param(0, 3, id="all convolutions are transposed for: the model was not converted"),
        pytest.param(1, 3, id="half of them"),
        pytest.param(2, 9, id="one of three: that one gets the other layout"),
    ],
)
def test_a_model_that_was_not_converted_is_reported_at_its_call(alone, line):
    sites, marks = model_lines()
    (found,) = find(transposing("nchwToNhwcKernel", alone=alone, around=marks, callsites=sites))
    assert found.location is not None
    assert found.location.line == line


def test_without_lines_the_function_that_calls_the_model_is_reported():
    frames = (
        python("a.py(1): train", 1, 90),
        python("torch/nn/modules/module.py(1): _call_impl", 2, 50),
        python("a.py(7): forward", 3, 40),
        python("b.py(5): forward", 4, 30),
    )
    (found,) = find(transposing("nchwToNhwcKernel", around=frames))
    assert found.location is not None
    assert (found.location.function, found.location.line, found.location.precision) == ("train", 1, "def")


@pytest.mark.parametrize(
    "name",
    [
        "implicit_convolve_sgemm",
        "void cudnn::ops::convertTensor_kernel<float, __half, float, (cudnnKernelDataType_t)2>()",
    ],
)
def test_on_a_gpu_convolutions_without_transposing_kernels_are_silent(name):
    assert find(transposing(name)) == []


@pytest.mark.parametrize(("duration", "reported"), [(1.2, 1), (0.8, 0)])
def test_on_a_gpu_kernels_below_one_percent_of_the_step_are_silent(duration, reported):
    assert len(find(transposing("nchwToNhwcKernel", duration))) == reported


@pytest.mark.parametrize(("times", "reported"), [(2, 1), (1, 0)])
def test_on_a_gpu_kernels_in_fewer_than_half_of_the_steps_are_silent(times, reported):
    assert len(find(transposing("nchwToNhwcKernel", times=times))) == reported


NET = (
    CallSite("net.py", 7, "Block.forward", "return relu(x + self.body(x))"),
    CallSite("net.py", 12, "Net.forward", "return self.head(self.blocks(x))"),
    CallSite("train.py", 30, "train", "loss = net(x).mean()"),
    CallSite("train.py", 41, "main", "train(net, batch)"),
)


@pytest.mark.parametrize(
    ("around", "line"),
    [
        ([0, 1, 2, 3], 30),  # the line that calls the outermost module
        ([0, 1], 12),  # a trainer of a library calls the model
        ([2, 3], 30),  # layers of PyTorch alone
        ([3], 41),
    ],
)
def test_the_line_that_calls_the_model_comes_before_the_line_of_its_convolutions(around: list[int], line: int):
    marks = [mark(site, 5 + i, 80 - 2 * i) for i, site in enumerate(reversed(around))]
    later = [{**event, "ts": event["ts"] + 100 * i} for i in (1, 2) for event in convolution()]
    steps = [step(0, 0, 100), step(1, 100, 100), step(2, 200, 100)]
    (found,) = find(facts_of([*steps, *marks, *convolution(), *later], callsites=NET))
    named = [place.line for place in found.places.all()]
    assert named == list(dict.fromkeys([line, NET[around[0]].line]))


def test_the_function_that_calls_the_model_is_found_from_python_frames():
    frames = [
        ("train.py(40): main", 0.5, 99),
        ("train.py(28): train", 1, 97),
        ("net.py(11): forward", 2, 90),
        ("torch/nn/modules/container.py(200): forward", 3, 80),
        ("net.py(6): forward", 4, 78),
    ]
    inside = [*(python(*frame) for frame in frames), *convolution()]
    (found,) = find(recording(inside))
    assert found.location is not None
    assert (found.location.function, found.location.precision) == ("train", "def")
