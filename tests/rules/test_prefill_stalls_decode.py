"""Prompts between steps that generate, and prompts that hold nobody up."""

from __future__ import annotations

import pytest

from profkit.rules.base import Need, Severity, Suspicion, missing_needs
from profkit.rules.prefill_stalls_decode import prefill_stalls_decode
from tests.traces import Json, annotation, facts_of, kernel, op, runtime

DECODE, PREFILL = "step[DECODE bs=8]", "step[EXTEND bs=1 toks=4096]"
MIXED = "execute_context_1(2000)_generation_8(8)"


def find(steps: list[tuple[str, float]]) -> list[Suspicion]:
    """Steps of these names and lengths, one after the other."""
    events: list[Json] = []
    at = 0.0
    for number, (name, length) in enumerate(steps):
        events += [
            annotation(name, at, length - 2),
            runtime("cudaGraphLaunch", at + 1, 1, correlation=number + 1),
            kernel("gemm", at + 3, length - 4, correlation=number + 1),
        ]
        at += length
    return list(prefill_stalls_decode.check(facts_of(events)))


def test_prompts_between_steps_that_generate():
    (found,) = find([(DECODE, 100), (DECODE, 100), (PREFILL, 500), (DECODE, 100), (DECODE, 100), (PREFILL, 500)])
    assert found.message == (
        "2 steps with prompts take 499 µs each, 5 times as long as those that only generate. 8 sequences wait for the "
        "next token meanwhile, 57 % of the time."
    )
    assert found.severity is Severity.LOW
    assert found.edit is None
    assert "--enable-mixed-chunk" in found.fix


def test_long_pauses_are_of_medium_severity():
    (found,) = find([(DECODE, 100), (PREFILL, 1100), (DECODE, 100), (PREFILL, 1100), (DECODE, 100)])
    assert found.severity is Severity.MEDIUM


def test_prompts_beside_the_next_tokens():
    decode = "execute_context_0(0)_generation_8(8)"
    (found,) = find([(decode, 100), (MIXED, 400), (decode, 100), (MIXED, 400), (decode, 100)])
    assert "--max-num-batched-tokens" in found.fix


@pytest.mark.parametrize(("length", "reported"), [(310, 1), (290, 0)])
def test_three_times_a_usual_step_is_the_least(length, reported):
    assert len(find([(DECODE, 100), (PREFILL, length), (DECODE, 100), (PREFILL, length), (DECODE, 100)])) == reported


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([(PREFILL, 900), (PREFILL, 900), *[(DECODE, 100)] * 6], "nobody generates yet"),
        ([(DECODE, 100), (PREFILL, 900), *[(DECODE, 100)] * 6], "once"),
        ([(DECODE, 100)] * 8, "no prompts"),
        ([(PREFILL, 900)] * 4, "no step that only generates"),
        ([*[(DECODE, 100)] * 40, (PREFILL, 310), *[(DECODE, 100)] * 40, (PREFILL, 310), (DECODE, 100)], "seldom"),
    ],
)
def test_other_servers_are_silent(steps, why):
    assert find(steps) == [], why


def test_other_programs_are_silent():
    assert find([("train 1", 100), ("train 2", 900), ("train 3", 100), ("train 4", 900)]) == []


def test_without_a_device():
    assert Need.DEVICE in missing_needs(facts_of([op("aten::add", 0, 5)]), prefill_stalls_decode.needs)
