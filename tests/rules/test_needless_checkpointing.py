"""Forward operators that the backward pass runs again, with memory to spare and without."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.needless_checkpointing import needless_checkpointing
from profkit.run.directory import CallSite, Host, LoadSample, Run
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, memory, op, python, runtime, step

Json = dict[str, Any]
BLOCK = ("aten::layer_norm", "aten::linear", "aten::gelu", "aten::linear")
GB = 1 << 30
KEPT = 4 * 1000
"""Each of a block's four operators allocates a kilobyte."""


def find(facts: Any) -> list[Suspicion]:
    return list(needless_checkpointing.check(facts))


def block(at: float, names: tuple[str, ...] = BLOCK, sequence: int | None = 1, tid: int = 1) -> list[Json]:
    """Operators of 5 µs, one right after the other."""
    return [
        event
        for i, name in enumerate(names)
        for event in (
            op(name, at + 5 * i, 5, sequence=None if sequence is None else sequence + i, tid=tid),
            memory(at + 5 * i + 1, 1000, 0x1000 * int(at + 5 * i + 1), tid=tid),
        )
    ]


def training(
    again: tuple[str, ...] = BLOCK, recorded: int | None = 11, node: str = "AddmmBackward0", steps: int = 4
) -> list[Json]:
    """Steps of 100 µs: a block for 20 µs, and in its backward node, before the gradients, ``again`` from 50 µs on."""
    events = []
    for i in range(steps):
        at = 100 * i
        name = f"autograd::engine::evaluate_function: {node}"
        events += [
            step(i, at, 100),
            *block(at + 10),
            op(name, at + 49, 45, sequence=4),
            op(node, at + 49.5, 44, sequence=4),
            *block(at + 50, again, recorded),
            op("aten::mm", at + 80, 10),
        ]
    return events


def on_host(total_bytes: int = 100 * GB, used_bytes: int = GB) -> dict[str, Any]:
    return {"run": Run(host=Host(8, 8, total_bytes)), "samples": (LoadSample(0, used_bytes, 1.0),)}


@pytest.mark.parametrize("node", ["AddmmBackward0", "CheckpointFunctionBackward"])
def test_what_the_backward_pass_runs_again_is_given_back(node: str):
    (found,) = find(facts_of(training(node=node), **on_host()))
    assert needless_checkpointing.kind is Kind.OPPORTUNITY
    assert found.count == 1
    assert found.evidence == {"kept_bytes": KEPT, "used_bytes": GB, "memory_bytes": 100 * GB}
    assert found.edit is not None
    facts = facts_of(training(node=node), **on_host())
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("again", "recorded"),
    [
        (BLOCK, None),  # the same operators as the formula of a gradient: nothing records gradients there
        (BLOCK[:3], 11),  # too few for a block
        (("aten::mul", "aten::add", "aten::neg", "aten::mul"), 11),  # `create_graph=True`: derivatives
        (BLOCK[::-1], 11),  # another order
        ((), 11),
    ],
)
def test_a_backward_pass_that_repeats_no_part_of_the_forward_pass_is_silent(again, recorded):
    assert find(facts_of(training(again, recorded), **on_host())) == []


@pytest.mark.parametrize(("used", "reported"), [(85_000 - KEPT, 1), (85_001 - KEPT, 0)])
def test_near_the_limit_it_is_right(used: int, reported: int):
    """Of 100,000 bytes 15,000 are to stay free."""
    assert len(find(facts_of(training(), **on_host(100_000, used)))) == reported


def on_device(again: tuple[str, ...] = BLOCK, **top_level: Any) -> Any:
    """The block's kernels take 5 µs each, those of the second time too; the host is ahead."""
    events = []
    for event in training(again):
        if event["name"] in BLOCK:
            number = len(events) + 1
            events += [
                runtime("cudaLaunchKernel", event["ts"] + 1, 1, correlation=number),
                kernel("k", event["ts"] + 2, 5, correlation=number),
            ]
        if event["name"] == "[memory]":
            event["args"].update({"Device Type": 1, "Device Id": 0, "Total Reserved": 2 * GB})
        events.append(event)
    return facts_of(events, **top_level)


@pytest.mark.parametrize(("total", "reported"), [(80 * GB, 1), (int(2.3 * GB), 0)])
def test_a_gpu_tells_its_memory_and_the_allocator_what_it_holds(total: int, reported: int):
    found = find(on_device(deviceProperties=[{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": total}]))
    assert len(found) == reported
    assert [one.evidence["used_bytes"] for one in found] == [2 * GB] * reported


def test_what_others_use_of_the_gpu_is_in_use_too():
    full = (LoadSample(0, GB, 1.0, gpu_memory_bytes=79 * GB),)
    devices = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80 * GB}]
    assert find(on_device(deviceProperties=devices, samples=full)) == []


@pytest.mark.parametrize("known", [{}, {"run": Run(host=Host(8, 8, GB))}, {"samples": (LoadSample(0, GB, 1.0),)}])
def test_it_cannot_look_where_it_is_not_known_how_much_is_free(known: dict[str, Any]):
    with pytest.raises(CannotLook, match="how much memory is free"):
        find(facts_of(training(), **known))


def test_without_memory_information_a_program_that_checkpoints_nothing_is_just_silent():
    assert find(facts_of(training(()))) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_steps_are_the_least(steps_with: int, reported: int):
    events = [event for event in training() if event["ts"] < 100 * steps_with or event["ts"] % 100 < 50]
    assert len(find(facts_of(events, **on_host()))) == reported


SITES = (
    CallSite("net.py", 7, "Block.forward", "return x + self.layers(x)"),
    CallSite("net.py", 20, "Net.forward", "x = checkpoint(block, x, use_reentrant=False)"),
    CallSite("train.py", 30, "train", "loss = net(x).mean()"),
    CallSite("net.py", 14, "Net.forward", "x = self.checkpoint_free(x)  # no checkpoint(block, x) here"),
)


@pytest.mark.parametrize(("around", "line"), [([2, 1, 0], 20), ([2], 30), ([2, 1, 3, 0], 20)])
def test_the_line_is_the_one_that_asks_for_it_or_in_a_library_the_last_of_the_program(around: list[int], line: int):
    """`gradient_checkpointing_enable()` of transformers calls it far below the program's line."""
    marks = [mark(site, 5 + i, 30 - 2 * i) for i, site in enumerate(around)]
    later = [{**event, "ts": event["ts"] + 100} for event in training()]
    (found,) = find(facts_of([*training(steps=1), *marks, *later], callsites=SITES, **on_host()))
    assert found.places.location is not None
    assert found.places.location.line == line


def test_python_frames_tell_the_function_that_asks_for_it():
    frames = [
        ("train.py(28): train", 2),
        ("net.py(18): forward", 3),
        ("torch/utils/checkpoint.py(354): checkpoint", 4),
        ("net.py(6): forward", 5),
    ]
    inside = [python(name, 100 * i + at, 40 - 2 * at) for i in range(4) for name, at in frames]
    (found,) = find(facts_of([*training(), *inside], **on_host()))
    assert found.places.location is not None
    assert (found.places.location.line, found.places.location.precision) == (18, "def")


def test_a_step_that_was_cut_off_cannot_be_judged():
    assert Need.WHOLE_STEP in needless_checkpointing.needs
    assert missing_needs(facts_of(training()), needless_checkpointing.needs) == []
