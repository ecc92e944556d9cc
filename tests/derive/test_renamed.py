"""Ranges of one kind whose digits change are steps; numbered parts of a step are not."""

from __future__ import annotations

import pytest

from profkit.derive.steps.boundaries import ONE_UPDATE, RENAMED, WHOLE_RECORDING
from profkit.diagnosis.pipeline import diagnose
from tests.traces import annotation, facts_of, op, python, runtime

VLLM = "execute_{0}_context_0(sq0sk0sqsq0sqsk0)_generation_{0}(sq{0}sk{1}sqsq{0}sqsk{1})"


def _steps(events):
    return facts_of([op("aten::empty", 0, 1), *events]).steps


def _windows(steps):
    return [(int(s) // 1000, int(e) // 1000) for s, e in zip(steps.start_ns, steps.end_ns, strict=True)]


def _ranges(names, *, every=1000, length=900, first=100):
    """One range after another, each around an operator."""
    found = []
    for at, name in enumerate(names):
        start = first + every * at
        found += [annotation(name, start, length), op("aten::mm", start + 10, length - 20)]
    return found


@pytest.mark.parametrize(
    "names",
    [
        [VLLM.format(32, 800 + n) for n in range(4)],
        ["execute_context_1(888)_generation_0(0)", *(f"execute_context_0(0)_generation_{n}({n})" for n in (8, 7, 8))],
        ["step[EXTEND bs=1 toks=8192]", "step[DECODE bs=32]", "step[DECODE bs=32]", "step[DECODE bs=31]"],
        [f"[Executor] _forward_step {n}: 0 ctx reqs, {n % 3} gen reqs" for n in (7, 8, 9, 10)],
        [f"train {n}" for n in (7, 8, 9, 10)],
        [f"request-{n}" for n in (41, 17, 99, 3)],
        [f"update (epoch 3, {n})" for n in range(4)],
        ["generate_masks 0", "generate_masks 1", "generate_masks 2", "generate_masks 3"],
    ],
)
def test_ranges_of_one_kind_whose_digits_change_are_steps(names):
    steps = _steps(_ranges(names))
    assert steps.source == RENAMED
    assert _windows(steps) == [(100, 1100), (1100, 2100), (2100, 3100), (3100, 4000)]


def test_an_engines_steps_need_not_fill_the_thread():
    """It waits and samples outside of its ranges, all of one name; another thread waits for results."""
    events = _ranges(["execute_context_0(0)_generation_1(1)"] * 4, length=200)
    events += [runtime("cudaEventSynchronize", 350 + 1000 * n, 700, tid=2) for n in range(4)]
    steps = _steps(events)
    assert steps.source == RENAMED
    assert _windows(steps) == [(100, 1100), (1100, 2100), (2100, 3100), (3100, 3300)]


def test_an_engine_without_requests_pauses():
    events = _ranges(["step[DECODE bs=8]"] * 3, length=200) + _ranges(["step[DECODE bs=8]"] * 2, length=200, first=9000)
    assert _windows(_steps(events)) == [(100, 1100), (1100, 2100), (2100, 2300), (9000, 10000), (10000, 10200)]


def test_what_passes_between_two_steps_belongs_to_the_first():
    events = [*_ranges([f"request {n}" for n in range(3)], every=1000, length=800), op("aten::mm", 2950, 500)]
    assert _windows(_steps(events)) == [(100, 1100), (1100, 2100), (2100, 3100)]


def test_a_pause_longer_than_a_step_does_not():
    late = _ranges(["request 3", "request 4"], first=9000)
    events = [*_ranges(["request 0", "request 1", "request 2"]), *late]
    assert _windows(_steps(events)) == [(100, 1100), (1100, 2100), (2100, 3000), (9000, 10000), (10000, 10900)]


@pytest.mark.parametrize(
    "name",
    [
        VLLM.format(32, 800),
        "execute_context_1(888_788544)_generation_0(0)",
        "execute_diffusion_1_256x256",
        "step[DECODE bs=32]",
    ],
)
def test_one_step_of_a_known_engine_is_enough(name):
    facts = facts_of([op("aten::empty", 0, 1), *_ranges([name])])
    assert facts.steps.source == RENAMED
    assert "no steps" not in diagnose(facts).verdict.text


@pytest.mark.parametrize("names", [["request 7"], ["request 7", "request 7", "request 7"]])
def test_a_range_without_another_number_is_not_told_by_its_digits(names):
    assert _steps(_ranges(names)).source != RENAMED


@pytest.mark.parametrize(
    "names",
    [
        [f"layer_{n}" for n in range(4)],
        [f"transformer.h.{n}.block" for n in range(4)],
        [f"micro-batch {n}" for n in range(4)],
        [f"capture_{n}_DECODE" for n in (8, 4, 2, 1)],
        [f"## Call CompiledFxGraph f{n}abc ##" for n in range(4)],
    ],
)
def test_numbered_parts_of_a_step_are_no_steps(names):
    assert _steps(_ranges(names)).source != RENAMED


def test_each_round_of_numbered_parts_is_a_step():
    steps = _steps(_ranges(["micro-batch 0", "micro-batch 1"] * 3))
    assert steps.source == RENAMED
    assert _windows(steps) == [(100, 2100), (2100, 4100), (4100, 6000)]


def test_ranges_that_hold_little_of_the_time_are_not_the_steps():
    events = [*_ranges([f"request {n}" for n in range(3)]), op("aten::mm", 3200, 3000)]
    assert _steps(events).source != RENAMED


def test_one_range_that_takes_most_of_the_time_is_no_step_beside_others():
    short = _ranges([f"mask {n}" for n in (1, 2, 3)], first=5200, every=20, length=15)
    events = [annotation("mask 0", 100, 5000), op("aten::mm", 110, 4000), *short]
    assert _steps(events).source != RENAMED


def test_layers_are_told_by_the_module_around_them():
    events = _ranges([f"part {n}" for n in range(4)])
    assert _steps([*events, python("nn.Module: Model_0", 50, 5000)]).source != RENAMED
    calls = [python("nn.Module: Model_0", 105 + 1000 * n, 800) for n in range(4)]
    assert _steps([*events, *calls]).source == RENAMED


BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def _rollout(backward_in):
    """Ten moves of 600 µs, with a backward pass of 200 µs after those in ``backward_in`` or, if -1, after the last."""
    events = []
    for move in range(10):
        at = 100 + 600 * move
        events += [
            op("aten::linear", at, 200),
            op("aten::softmax", at + 220, 100),
            op("aten::multinomial", at + 350, 50),
        ]
        if move in backward_in:
            events.append(op(BACKWARD, at + 420, 100))
    if -1 in backward_in:
        events.append(op(BACKWARD, 6150, 200))
    return events


def test_moves_before_one_backward_pass_are_one_step():
    update = annotation("Optimizer.step#Adam.step", 6400, 200)
    steps = _steps([*_rollout([-1]), update])
    assert (len(steps), steps.source) == (1, ONE_UPDATE)
    assert steps.median_ns == 6_600_000
    assert "no steps" not in diagnose(facts_of([*_rollout([-1]), update])).verdict.text


@pytest.mark.parametrize("backward_in", [range(10), []])
def test_a_pattern_with_a_backward_pass_in_each_round_or_in_none_is_the_step(backward_in):
    steps = _steps(_rollout(backward_in))
    assert steps.source == "a pattern that repeats"
    assert len(steps) >= 8


def test_without_an_optimizer_moves_before_one_backward_pass_are_no_steps():
    assert _steps(_rollout([-1])).source == WHOLE_RECORDING


def test_numbered_moves_before_one_backward_pass_are_no_steps():
    moves = [annotation(f"env_step {n}", 100 + 600 * n, 550) for n in range(10)]
    assert _steps([*_rollout([]), *moves]).source == "the program's numbered ranges"
    assert _steps([*_rollout([-1]), *moves]).source == WHOLE_RECORDING
