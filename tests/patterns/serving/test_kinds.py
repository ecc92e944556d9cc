"""The steps of engines: by their names, and what the device does in and between them."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.time.serving import Step, engine_steps, read_sglang, read_vllm
from profkit.report import render
from tests.traces import Json, annotation, facts_of, kernel, python, runtime


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("execute_context_2(512)_generation_30(30)", Step(2, 30, 542, 0)),
        ("execute_context_0(0)_generation_32(32)", Step(0, 32, 32, 0)),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
            Step(9, 37, 8192, 42919),
        ),
        ("execute_model", None),
        ("step[DECODE bs=32]", None),
    ],
)
def test_vllms_names(name, step):
    assert read_vllm(name) == step


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step[DECODE bs=32]", Step(0, 32, 32, 0)),
        ("step[EXTEND bs=15 toks=15360]", Step(15, 0, 15360, 0)),
        ("step[MIXED bs=4 toks=100]", Step(4, 4, 100, 0)),
        ("step 7", None),
    ],
)
def test_sglangs_names(name, step):
    assert read_sglang(name) == step


def test_kinds_of_steps():
    assert [Step(*counts, 1, 0).kind for counts in ((1, 0), (0, 1), (1, 1))] == ["prefill", "decode", "mixed"]


def _decoding(count: int, launch: str = "cudaGraphLaunch", name: str = "execute_context_0(0)_generation_8(8)") -> Facts:
    """Steps of 1000 µs with 600 µs of work, and 350 µs of Python before the next."""
    events: list[Json] = []
    for number in range(count):
        at = 1000 * number
        events += [
            annotation(name, at, 50),
            runtime(launch, at + 10, 20, correlation=number + 1),
            kernel("gemm", at + 50, 400, correlation=number + 1),
            kernel("attention", at + 450, 200, correlation=number + 1),
            runtime("cudaStreamSynchronize", at + 60, 595),
            python("scheduler.py(12): schedule", at + 660, 300),
            python("sampler.py(3): sample", at + 970, 29),
        ]
    return facts_of(events)


def test_steps_of_one_kind():
    (one,) = engine_steps(_decoding(4))
    assert (one.engine, one.kind, one.steps, one.sequences, one.tokens) == ("vLLM", "decode", 4, 8.0, 8.0)
    assert one.step_ns == 1_000_000
    assert one.device_ns == 600_000
    assert one.replayed == 1.0
    assert one.tokens_per_s == pytest.approx(8000)


def test_what_lies_between_two_replays():
    (one,) = engine_steps(_decoding(4))
    assert one.idle_ns == 400_000
    assert one.idle_in == ("scheduler.py(12): schedule",)


def test_kernels_without_a_graph():
    (one,) = engine_steps(_decoding(4, "cudaLaunchKernel"))
    assert one.replayed == 0.0


def test_a_single_step_that_waits_has_no_rate():
    late = [
        annotation("step[DECODE bs=4]", 0, 900),
        runtime("hipGraphLaunch", 10, 5, correlation=1),
        kernel("gemm", 20, 90, correlation=1),
    ]
    (one,) = engine_steps(facts_of(late))
    assert one.engine == "SGLang"
    assert one.tokens_per_s == 0.0
    assert one.idle_ns == 0


def test_vllms_names_around_sglangs_are_one_account():
    events = [annotation("step[DECODE bs=8]", 1000 * number + 1, 40) for number in range(3)]
    around = _decoding(3)
    (one,) = engine_steps(around)
    assert one.engine == "vLLM"
    both = [
        *(annotation("execute_context_0(0)_generation_8(8)", 1000 * number, 50) for number in range(3)),
        *events,
    ]
    (two,) = engine_steps(facts_of(both))
    assert (two.engine, two.steps) == ("SGLang", 3)


def test_other_programs_have_none():
    assert engine_steps(facts_of([annotation("train_step", 0, 50), kernel("gemm", 1, 5)])) == ()


def test_reports_tell_them():
    diagnosis = diagnose(_decoding(4))
    text = " ".join(render(diagnosis, "text").split())
    assert "vLLM, decode: 4 steps of 8 tokens of 8 sequences, 1.00 ms each. The device works 600 µs of that" in text
    assert "Before it the device idles 400 µs, in scheduler.py(12): schedule." in text
    assert "8,000 tokens a second" in text
    assert "vLLM, decode" in render(diagnosis, "html")
