"""Calls of the model end steps if the program gives no better signal."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import Optimizer

from profkit.collect.boundaries import accumulation, forwards
from profkit.collect.boundaries.forwards import ForwardCalls
from profkit.collect.program.guard import Guard
from profkit.collect.recorder import prologue
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from tests.collect.reading import read_events, steps_of

Install = Callable[[], tuple[ForwardCalls, list[str]]]


@pytest.fixture(autouse=True)
def nothing_was_compiled_or_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by other tests of this process: gradients in one of their optimizers would keep calls from ending steps."""
    gc.collect()
    trained, look = accumulation.living(Optimizer), accumulation.living
    monkeypatch.setattr(accumulation, "living", lambda kind: [one for one in look(kind) if one not in trained])
    others, find = len(list(forwards._given_to_compiler())), forwards._given_to_compiler
    monkeypatch.setattr(forwards, "_was_compiled", lambda: False)
    monkeypatch.setattr(forwards, "_given_to_compiler", lambda: list(find())[others:])


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Install:
    def install() -> tuple[ForwardCalls, list[str]]:
        known: list[str] = []
        calls = ForwardCalls(lambda: known.append("call"), Guard(lambda error: pytest.fail(str(error))))
        request.addfinalizer(calls.remove)
        calls.install()
        return calls, known

    return install


def test_each_call_of_the_outermost_module_counts_once(listening):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2))).eval()
    _, known = listening()
    for _ in range(3):
        model(torch.ones(1, 4))
    assert known == ["call"] * 3


def test_a_half_made_module_is_left_alone(listening):
    half_made = nn.Conv2d.__new__(nn.Conv2d)
    model = nn.Sequential(nn.Linear(4, 2))
    _, known = listening()
    model(torch.ones(1, 4))
    assert known == ["call"]
    assert not vars(half_made)


def test_only_the_model_called_first_counts(listening):
    teacher, student = nn.Linear(4, 4).eval(), nn.Linear(4, 4).eval()
    _, known = listening()
    for _ in range(3):
        teacher(torch.ones(1, 4))
        student(torch.ones(1, 4))
    assert known == ["call"] * 3


class _Resize(nn.Module):
    """Like torchvision's transforms."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image[:2]


def test_modules_without_weights_do_not_count(listening):
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    prepare, lossy = nn.Sequential(_Resize(), nn.Flatten()), nn.MSELoss()
    _, known = listening()
    for _ in range(3):
        batch = torch.stack([prepare(image) for image in torch.ones(5, 3, 4)]).reshape(-1, 4)
        lossy(model(batch), batch)
    assert known == ["call"] * 3


def _with_deep(weights: str) -> nn.Module:
    innermost = _Resize()
    if weights == "parameter":
        innermost.register_parameter("scale", nn.Parameter(torch.ones(1)))
    else:
        innermost.register_buffer("scale", torch.ones(1))
    return nn.Sequential(nn.Sequential(nn.Flatten(), innermost))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: _with_deep("parameter"),
        lambda: _with_deep("buffer"),
        lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}),
        lambda: torch.jit.trace(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), check_trace=False),
    ],
    ids=["parameter", "buffer", "packed", "scripted"],
)
def test_weights_of_any_kind_make_a_module_a_model(listening, make):
    model = make()
    _, known = listening()
    model(torch.ones(3, 4))
    assert known == ["call"]


def test_no_hook_is_left_and_none_is_ever_on_a_module(listening):
    model = nn.Linear(4, 4)
    calls, known = listening()
    assert len(modules._global_forward_hooks) == 1
    assert not model._forward_hooks
    calls.install()
    calls.remove()
    calls.remove()
    assert not modules._global_forward_hooks
    model(torch.ones(1, 4))
    assert known == []


def test_calls_do_not_count_if_something_was_compiled(listening, monkeypatch):
    monkeypatch.setattr(forwards, "_was_compiled", lambda: True)
    listening()
    assert not modules._global_forward_hooks


def _compile_in_place() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    "make",
    [
        _compile_in_place,
        lambda: torch.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), backend="eager"),
        lambda: torch.compile(lambda x: x + 1, backend="eager"),
    ],
    ids=["module in place", "module", "function"],
)
def test_calls_do_not_count_if_something_is_going_to_be_compiled(listening, make):
    """The hook would be compiled too, with a warning."""
    compiled = make()
    listening()
    assert not modules._global_forward_hooks
    del compiled


def test_calls_stop_counting_once_the_program_calls_the_compiler(listening):
    original = torch.compile
    _, known = listening()
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2))
    assert torch.compile is not original
    compiled = torch.compile(model, backend="eager")
    assert not modules._global_forward_hooks
    assert torch.compile is original
    assert isinstance(compiled(torch.ones(1, 2)), torch.Tensor)
    assert known == ["call"]


def test_calls_do_not_count_inside_a_call_of_the_compiler(listening, monkeypatch):
    """Importing the compiler makes the process grow, which ends the prologue and starts the listening."""
    monkeypatch.setattr(torch, "compile", lambda: listening())
    torch.compile()
    assert not modules._global_forward_hooks


def test_a_function_that_the_compiler_skips_is_not_compiled(listening):
    skipped = torch.compiler.disable(lambda x: x + 1)
    listening()
    assert modules._global_forward_hooks
    del skipped


@torch.inference_mode()
def infer_until_over(recording: profile) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    for _ in range(5_000_000):
        model(torch.ones(1, 8))
        if recording.is_over:
            return
    pytest.fail("the recording never ended")


@pytest.mark.usefixtures("watched_closely")
def test_an_inference_loop_has_steps_once_the_prologue_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(prologue, "GROWTH_BYTES", -1)
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        infer_until_over(recording)
    assert load_run(tmp_path).step_signal == "forward"
    assert sorted(steps_of(read_events(tmp_path))) == [0, 2, 3]


@pytest.mark.usefixtures("watched_closely")
def test_an_inference_loop_has_steps_in_a_lightly_recorded_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(prologue, "_LEAST_WAIT_S", 0)
    monkeypatch.setattr(os, "environ", {**os.environ, "RANK": "1", "WORLD_SIZE": "2"})
    with profile(tmp_path / "run", wait=1, warmup=1, active=2, ranks=1) as recording:
        infer_until_over(recording)
    folder = tmp_path / "run" / "rank1"
    assert (load_run(folder).step_signal, load_run(folder).is_light) == ("forward", True)
    assert sorted(steps_of(read_events(folder))) == [0, 2, 3]
    assert not any(event["name"].startswith("aten::") for event in read_events(folder))


@pytest.mark.usefixtures("watched_closely")
def test_the_optimizer_ends_the_steps_while_gradients_accumulate(tmp_path, monkeypatch):
    """Even if the process grows so much in its first passes that the prologue ends before the first step."""
    monkeypatch.setattr(prologue, "GROWTH_BYTES", -1)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(tmp_path, wait=1, warmup=1, active=2):
        while not modules._global_forward_hooks:
            torch.ones(1, 8).neg()
        for _ in range(6):
            optimizer.zero_grad()
            for _ in range(20):
                model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
    run = load_run(tmp_path)
    assert run.step_signal == "optimizer"
    assert len(run.reference_step_ns) >= 2
