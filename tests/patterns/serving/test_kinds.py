"""The steps of engines: by their names, and what the device does in and between them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.serving.kinds import engine_steps
from profkit.patterns.serving.names import Step, read_sglang, read_tensorrt, read_vllm
from profkit.report import render
from profkit.run.directory import Rates, Run
from tests.traces import Json, annotation, facts_of, kernel, memcpy, op, python, runtime


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("execute_context_2(512)_generation_30(30)", Step(2, 30, 542, 0)),
        ("execute_context_0(0)_generation_32(32)", Step(0, 32, 32, 0)),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
            Step(9, 37, 8192, 42919),
        ),
        ("execute_context_1(888_788544)_generation_0(0_0)", Step(1, 0, 888, 0)),
        ("execute_model", None),
        (f"execute_context_{'9' * 5000}(1)_generation_0(0)", None),
        (f"execute_context_1({'s' * 101})_generation_1(1)", None),
        (f"{'execute_context_1(' * 20_000}1)_generation_1(1)", Step(1, 1, 2, 0)),
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


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("[Executor] _forward_step 7: 0 ctx reqs, 32 gen reqs", Step(0, 32, 32, 0)),
        ("[Executor] _forward_step 7: 2 ctx reqs, 512 ctx tokens, 3 gen reqs", Step(2, 3, 515, 0)),
        ("[Executor] _forward_step 7: 2 ctx reqs, 3 gen reqs", Step(2, 3, 0, 0)),
        ("_forward_step: 0 ctx reqs, 1 gen reqs", Step(0, 1, 1, 0)),
        ("_forward_step 7", None),
    ],
)
def test_tensorrts_names(name, step):
    assert read_tensorrt(name) == step


def test_kinds_of_steps():
    assert [Step(*counts, 1, 0).kind for counts in ((1, 0), (0, 1), (1, 1))] == ["prefill", "decode", "mixed"]


def _decoding(
    count: int, launch: str = "cudaGraphLaunch", name: str = "execute_context_0(0)_generation_8(8)", paused_us: int = 0
) -> Facts:
    """Steps of 1000 µs with 600 µs of work, and 350 µs of Python before the next. In the middle is a pause."""
    events: list[Json] = []
    for number in range(count):
        at = 1000 * number + (paused_us if number >= count // 2 else 0)
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


def test_waiting_for_work_that_was_not_recorded_is_no_part_of_a_step():
    """The first kernel is queued for 800 µs behind something that the recording lacks."""
    events = [
        annotation("step[DECODE bs=4]", 0, 900),
        runtime("cudaMemcpyAsync", 5, 5, correlation=1),
        memcpy("Memcpy HtoD (Pinned -> Device)", 12, 3, correlation=1),
        runtime("cudaGraphLaunch", 20, 5, correlation=2),
        kernel("gemm", 825, 100, correlation=2),
    ]
    (one,) = engine_steps(facts_of(events))
    assert one.device_ns == 103_000
    assert one.step_ns == pytest.approx(163_000, abs=2_000)  # of the 810 µs, 60 are on this side of the queue


def test_a_pause_without_requests_is_not_idling_before_a_step():
    (one,) = engine_steps(_decoding(8, paused_us=50_000))
    assert one.steps == 8
    assert one.idle_ns == 400_000


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


def test_waiting_for_a_steps_tokens_is_no_fault_of_its_own():
    named = {finding.rule for finding in diagnose(_decoding(8)).findings}
    assert named == {"host-between-replays"}
    other = {finding.rule for finding in diagnose(_decoding(8, name="train 1")).findings}
    assert other == {"host-between-replays", "host-sync-in-step"}


def test_reports_tell_them():
    diagnosis = diagnose(_decoding(4))
    text = " ".join(render(diagnosis, "text").split())
    assert "vLLM, decode: 4 steps of 8 tokens of 8 sequences, 1.00 ms each, by the names of its ranges." in text
    assert "The device works 600 µs of that, replayed from a graph." in text
    assert "Of its kernels' time: matrix products 67 %, attention 33 %." in text
    assert "Before it the device idles 400 µs, in scheduler.py(12): schedule." in text
    assert "8,000 tokens a second" in text
    assert "vLLM, decode" in render(diagnosis, "html")


def _looping(length: int, more: Iterable[Json] = (), bandwidth: float = 1e9) -> Facts:
    """A loop of one's own on a processor: each pass takes 1000 µs."""
    events: list[Json] = []
    for number in range(5):
        at, read = 1000 * number, length + number if length > 1 else 1
        events += [
            op("aten::embedding", at + 1, 10, dims=[[1000, 64], [2, read]]),
            op("aten::linear", at + 20, 700, dims=[[2, 1, 64], [1000, 64], []], types=["float", "float", ""]),
            op("aten::gru", at + 730, 30, dims=[[2, 1, 64]]),
            op("aten::argmax", at + 800, 20, dims=[[2, 1000], [], []]),
        ]
    return facts_of([*events, *more], run=Run(rates=Rates("a processor", bandwidth, {})))


def test_reports_tell_a_loop_of_ones_own():
    diagnosis = diagnose(_looping(1))
    text = " ".join(render(diagnosis, "text").split())
    assert "A loop of the program's own adds a token to 2 sequences in each pass, 1.00 ms each." in text
    assert "That makes 2,000 tokens a second, one every 500 µs." in text
    assert "A pass has to read 256 kB of weights, at least 256 µs: it takes 3.9 times as long." in text
    (one,) = diagnosis.serving
    assert (one.engine, one.kind, one.weight_bytes, one.floor_ns) == ("", "decode", 256_000, 256_000)


def test_a_floor_above_the_pass_is_none():
    """Shapes may say more than a pass reads, as of weights that stay in a cache."""
    assert "A pass has to read" not in " ".join(render(diagnose(_looping(1, bandwidth=1e8)), "text").split())


def test_reports_tell_what_is_read_beside_each_token():
    """As an encoder that is run in the loop that decodes: its time belongs to the pass."""
    source = [op("aten::embedding", 1000 * number + 850, 10, dims=[[1000, 64], [1, 30]]) for number in range(5)]
    beside = "For each pass the model also looks up 30 other tokens."
    for more, is_told in ((source, True), (source[:1], False)):
        text = " ".join(render(diagnose(_looping(1, more)), "text").split())
        assert (beside in text) is is_told
        assert "adds a token to 2 sequences in each pass, 1.00 ms each." in text


def test_reports_tell_what_is_read_again():
    text = " ".join(render(diagnose(_looping(30)), "text").split())
    assert "Each pass reads 32 tokens of a sequence again, of which one is new." in text


def test_an_engine_on_a_processor():
    events = [annotation("execute_context_0(0)_generation_8(8)", 1000 * number, 600) for number in range(5)]
    events += [op("aten::mm", 1000 * number + 5, 500) for number in range(5)]
    (one,) = diagnose(facts_of(events)).serving
    assert (one.steps, one.step_ns, one.device_ns, one.idle_ns) == (5, 1_000_000, 0, 0)
    assert one.tokens_per_s == pytest.approx(8000)


def _busy(name: str, launch: str = "cudaGraphLaunch") -> list[Json]:
    """Steps of 1000 µs in which the device never rests, launched ahead."""
    events: list[Json] = []
    for number in range(6):
        events += [
            annotation(name, 1000 * number, 900),
            runtime(launch, 1000 * number + 5, 20, correlation=number + 1),
            kernel("gemm", 1000 * number + 45, 1000, correlation=number + 1),
        ]
    return events


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("step[DECODE bs=8]", "SGLang generates 8,000 tokens a second, 100 % of its kernels' time in matrix products"),
        ("step[EXTEND bs=1 toks=4096]", "SGLang reads 4,096,000 tokens of prompts a second, 100 % of"),
        ("step[MIXED bs=4 toks=900]", "SGLang generates 4,000 tokens a second beside reading prompts, 100 % of"),
    ],
)
def test_the_verdict_tells_what_is_served(name, says):
    verdict = diagnose(facts_of(_busy(name))).verdict
    assert verdict is not None
    assert says in verdict.text


def test_the_verdict_tells_what_a_loop_adds():
    verdict = diagnose(_looping(1)).verdict
    assert verdict is not None
    says = "the loop that generates text adds 2,000 tokens a second, 3.9 times as long as reading weights and cache"
    assert says in verdict.text
