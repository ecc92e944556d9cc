"""The host that stops in each step: with a GPU by what the waits cost, without one by the lines that read numbers."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import read_facts
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.device_to_host_in_step import device_to_host_in_step
from profkit.rules.host_sync_in_step import host_sync_in_step
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_part, predict_saving
from tests.traces import annotation, facts_of, kernel, mark, memcpy, op, python, rows_named, runtime, step

Json = dict[str, Any]
STEPS = range(4)


def find(facts) -> list[Suspicion]:
    return list(host_sync_in_step.check(facts))


def read(start: float, tid: int = 1) -> list[Json]:
    """``x.item()`` on the CPU: 4 µs."""
    return [op("aten::item", start, 4, tid=tid), op("aten::_local_scalar_dense", start + 1, 2, tid=tid)]


def branch(start: float) -> list[Json]:
    """``if x:`` on the CPU: 6 µs."""
    return [op("aten::is_nonzero", start, 6), *read(start + 1)]


def stepped(*parts: list[Json], steps: range = STEPS) -> list[Json]:
    """Steps of 100 µs that all hold the same, with times counted from the step's start."""
    return [
        event
        for i in steps
        for event in shifted([step(i, 0, 100), op("aten::mm", 1, 9)], i)
        + [moved for part in parts for moved in shifted(part, i)]
    ]


def shifted(events: list[Json], i: int) -> list[Json]:
    """The same events ``i`` steps later, with correlations of their own."""
    moved = [{**event, "ts": event["ts"] + 100 * i} for event in events]
    return [
        {**event, "args": {**event["args"], "correlation": event["args"]["correlation"] + 1000 * i}}
        if "correlation" in event["args"]
        else event
        for event in moved
    ]


def wait_for_number(start: float, kernel_us: float, correlation: int = 1) -> list[Json]:
    """A kernel launched at ``start`` and the read of its result, which ends 4 µs after the kernel."""
    end = start + 5 + kernel_us
    return [
        op("aten::mul", start, 4),
        runtime("cudaLaunchKernel", start + 1, 2, correlation=correlation),
        kernel("k", start + 5, kernel_us, correlation=correlation),
        op("aten::item", start + 6, kernel_us + 4),
        op("aten::_local_scalar_dense", start + 7, kernel_us + 2),
        runtime("cudaMemcpyAsync", start + 8, 2, correlation=correlation + 1),
        memcpy("Memcpy DtoH (Device -> Pinned)", end, 2, correlation=correlation + 1, size_bytes=4),
        runtime("cudaStreamSynchronize", start + 10, kernel_us - 2),
    ]


# Without a GPU


def test_a_number_read_in_each_step_is_reported_with_what_it_costs():
    facts = facts_of(stepped(read(50)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::item")
    assert found.evidence == {"reads_per_step": 1.0, "time_ns_per_step": 4000}
    assert "once a step" in found.message
    assert "4.00 µs" in found.message
    assert "GPU" in found.message
    assert predict_saving(facts, found.edit).fraction == 0.04


def test_a_branch_on_a_tensor_is_a_read():
    facts = facts_of(stepped(branch(50)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::is_nonzero")
    assert predict_saving(facts, found.edit).fraction == 0.06


def test_an_operator_that_reads_a_number_inside_keeps_the_rest_of_its_time():
    facts = facts_of(stepped([op("aten::one_hot", 50, 40), *read(60)]))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::one_hot")
    assert predict_saving(facts, found.edit).fraction == 0.04


def test_lines_are_reported_one_by_one():
    located = [step(0, 0, 100), op("aten::mm", 1, 9), mark(3, 49, 10), *read(50), mark(5, 69, 10), *branch(70)]
    facts = facts_of([*located, *stepped(read(50), branch(70), steps=range(1, 5))])
    assert [facts.lines.site[found.rows].tolist() for found in find(facts)] == [[3] * 4, [5] * 4]


@pytest.mark.parametrize(("reading", "reported"), [(1, 0), (2, 1)])
def test_a_read_counts_from_half_of_the_steps_on(reading, reported):
    events = stepped() + [event for i in range(reading) for event in shifted(read(50), i)]
    assert len(find(facts_of(events))) == reported


@pytest.mark.parametrize(("reads", "reported"), [(63, 1), (64, 0)])
def test_a_loop_over_elements_is_left_to_its_own_rule(reads, reported):
    loop = [
        event
        for i in range(reads)
        for event in (op("aten::item", 20 + i, 0.8), op("aten::_local_scalar_dense", 20.1 + i, 0.5))
    ]
    assert len(find(facts_of(stepped(loop)))) == reported


@pytest.mark.parametrize(
    "around",
    [
        [annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 45, 20), *read(50)],
        [annotation("Optimizer.step#Adam.step", 45, 20), *read(50)],
        [op("autograd::engine::evaluate_function: MyBackward", 45, 20, sequence=1), *read(50)],
        [op("aten::empty", 40, 2), op("aten::random_", 45, 2), *read(50)],
        read(50, tid=2),
    ],
    ids=["the loader's", "the optimizer's", "of the backward pass", "a seed's", "another thread's"],
)
def test_reads_that_are_not_the_programs_are_silent(around):
    assert find(facts_of(stepped(around))) == []


def test_gradscalers_check_for_overflow_is_silent_and_a_read_beside_it_is_not():
    check = [
        op("aten::_amp_foreach_non_finite_check_and_unscale_", 40, 5),
        *read(50),
        annotation("Optimizer.step#AdamW.step", 60, 20),
        op("aten::_foreach_add_", 61, 9),
    ]
    assert find(facts_of(stepped(check))) == []
    facts = facts_of(stepped(read(20), check))
    (found,) = find(facts)
    assert facts.trace.events.start_ns[found.rows].tolist() == [20_000, 120_000, 220_000, 320_000]


def test_a_recording_of_one_step_does_not_tell_what_every_step_does():
    assert find(facts_of(stepped(read(50), steps=range(1)))) == []


def test_without_operators_the_rule_does_not_look():
    with pytest.raises(CannotLook, match="no operators of the host"):
        find(facts_of([step(0, 0, 100), kernel("k", 10, 5)]))


def test_without_operators_the_calls_of_cuda_show_the_waits():
    def launch_and_wait(at: int) -> list:
        return [
            runtime("cudaLaunchKernel", at, 5, correlation=at + 1),
            kernel("k", at + 10, 20, correlation=at + 1),
            runtime("cudaStreamSynchronize", at + 6, 26),
        ]

    events = [
        event
        for n in range(4)
        for event in (step(n, 100 * n, 100), *launch_and_wait(100 * n + 1), *launch_and_wait(100 * n + 51))
    ]
    (found,) = find(facts_of(events))
    assert found.message.startswith(
        "The host waits 52.0 µs a step for the device, twice a step in cudaStreamSynchronize"
    )


def test_a_gpu_program_whose_kernels_are_missing_cannot_be_judged():
    facts = facts_of(stepped([*read(50), runtime("cudaStreamSynchronize", 51, 1)]))
    with pytest.raises(CannotLook, match="GPU's side"):
        find(facts)


# With a GPU


def test_a_wait_that_drains_the_queue_is_worth_what_the_step_would_gain():
    """Of 100 µs the host reads for 44, and waits 38 of them; the device needs 42 of each step, back to back."""
    launched_later = [
        op("aten::add", 60, 4),
        runtime("cudaLaunchKernel", 61, 2, correlation=7),
        kernel("k", 64, 1, correlation=7),
    ]
    facts = facts_of(stepped(wait_for_number(10, 40), launched_later))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::item")
    assert found.evidence == {"waits_per_step": 1.0, "waited_ns_per_step": 38_000}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.44, abs=0.005)
    assert "38.0 µs a step" in found.message
    assert "44 % shorter" in found.message
    assert "For 37.0 µs of it the device works" in found.message


@pytest.mark.parametrize(("worked_us", "idles"), [(18, True), (20, False)])
def test_a_wait_behind_which_the_device_mostly_idles_is_told_as_such(worked_us: int, idles: bool) -> None:
    """The host waits 38 µs, and the device works for the first of them."""
    launch = [
        op("aten::mul", 10, 4),
        runtime("cudaLaunchKernel", 11, 2, correlation=1),
        kernel("k", 20, worked_us, correlation=1),
    ]
    (found,) = find(facts_of(stepped([*launch, runtime("cudaDeviceSynchronize", 20, 38)])))
    assert ("The device has nothing to do meanwhile" in found.message) == idles
    assert (f"For {worked_us}.0 µs of it the device works" in found.message) != idles


def test_a_wait_that_the_device_works_through_is_worth_nothing_and_is_named_all_the_same():
    busy = [
        op("aten::mm", 2, 4),
        runtime("cudaLaunchKernel", 3, 2, correlation=7),
        kernel("long", 6, 99, correlation=7, stream=20),
    ]
    facts = facts_of(stepped(wait_for_number(10, 40), busy))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction < 0.005
    assert "costs almost nothing" in found.message


def test_a_call_that_synchronises_is_reported_at_its_line_when_it_costs_something():
    def part(line: bool) -> list[Json]:
        launch = [
            op("aten::mul", 10, 4),
            runtime("cudaLaunchKernel", 11, 2, correlation=1),
            kernel("k", 15, 40, correlation=1),
        ]
        return [*launch, *([mark(8, 19, 40)] if line else []), runtime("cudaDeviceSynchronize", 20, 37)]

    facts = facts_of([*shifted([step(0, 0, 100), *part(True)], 0), *stepped(part(False), steps=range(1, 5))])
    (found,) = find(facts)
    assert facts.lines.site[found.rows].tolist() == [8] * 4
    assert "cudaDeviceSynchronize" in found.message
    assert found.fix.startswith("Remove the call")


def copying(direction: str, size_bytes: int) -> list[Json]:
    """A kernel, and a copy of so many bytes that waits for it and then has the device idle."""
    return [
        op("aten::mul", 10, 4),
        runtime("cudaLaunchKernel", 11, 2, correlation=1),
        kernel("k", 15, 40, correlation=1),
        op("aten::to", 16, 44),
        op("aten::copy_", 17, 42),
        runtime("cudaMemcpyAsync", 18, 2, correlation=2),
        memcpy(f"Memcpy {direction}", 55, 2, correlation=2, size_bytes=size_bytes),
        runtime("cudaStreamSynchronize", 21, 37),
    ]


@pytest.mark.parametrize(
    ("direction", "size_bytes", "advice"),
    [
        ("HtoD (Pageable -> Device)", 64 << 10, "Create small tensors on the device"),
        ("HtoD (Pinned -> Device)", (64 << 10) + 1, "The memory is already pinned: copy with `non_blocking=True`"),
        ("HtoD", (64 << 10) + 1, "Copy from pinned memory"),  # AMD's profiler does not say which memory
        ("DtoH (Device -> Pageable)", 16, "Keep the value on the device"),
        ("DtoH (Device -> Pageable)", 17, "Keep the value on the device"),
    ],
)
def test_copies_that_wait_are_reported_with_what_goes_with_their_size(direction, size_bytes, advice):
    (found,) = find(facts_of(stepped(copying(direction, size_bytes))))
    assert found.fix.startswith(advice)


def test_what_a_rule_of_the_transfers_names_better_is_not_told_again():
    assert find(facts_of(stepped(copying("HtoD (Pageable -> Device)", (64 << 10) + 1)))) == []


def test_boolean_indexing_has_a_rule_of_its_own():
    renamed = [
        {**event, "name": "aten::nonzero"} if event["name"] == "aten::item" else event
        for event in wait_for_number(10, 40)
    ]
    assert find(facts_of(stepped(renamed))) == []


def test_of_waits_that_take_turns_all_are_priced_together_and_each_has_its_part():
    """Two reads right after each other, on two lines: going on at one only lets the other wait as long."""
    reads = [
        op("aten::add", 2, 4),
        runtime("cudaLaunchKernel", 3, 2, correlation=1),
        kernel("k", 6, 60, correlation=1),
        mark(1, 9, 59),
        op("aten::item", 10, 57),
        op("aten::_local_scalar_dense", 11, 55),
        runtime("cudaStreamSynchronize", 12, 54),
        mark(2, 68, 4),
        op("aten::item", 68.5, 3),
        op("aten::_local_scalar_dense", 68.6, 2),
        runtime("cudaStreamSynchronize", 68.7, 1),
        op("aten::mul", 75, 4),
        runtime("cudaLaunchKernel", 76, 2, correlation=2),
        kernel("k", 85, 5, correlation=2),
    ]
    facts = facts_of(stepped(reads), callsites=(CallSite("t.py", 0, "f"), *(CallSite("t.py", n, "f") for n in (4, 5))))
    first, second = find(facts)
    assert first.joint is not None
    assert first.part + second.part == pytest.approx(1.0)
    alone = sum(predict_saving(facts, found.edit).fraction for found in (first, second))
    together = predict_saving(facts, first.joint).fraction
    parts = [predict_part(facts, found.joint, found.part).fraction for found in (first, second) if found.joint]
    assert sum(parts) == pytest.approx(together, abs=1e-5)
    assert together > alone
    assert "with 1 other line like it" in first.message


def test_a_call_that_is_taken_out_goes_with_the_frames_of_the_library():
    """Of 100 µs the program spends 30 in `torch.cuda.synchronize`, of which it waits for 5."""
    call = [
        python("train.py(3): step", 1, 95),
        python("torch/cuda/__init__.py(1040): synchronize", 20, 30),
        python("torch/cuda/__init__.py(400): __enter__", 21, 5),
        runtime("cudaDeviceSynchronize", 40, 5),
        op("aten::mul", 5, 4),
        runtime("cudaLaunchKernel", 6, 2, correlation=1),
        kernel("k", 10, 34, correlation=1),
    ]
    facts = facts_of(stepped(call))
    (found,) = find(facts)
    assert found.fix.startswith("Remove the call")
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.30, abs=0.01)


def test_in_a_recording_of_one_step_only_repeated_waits_that_cost_something_count():
    waits = [wait_for_number(10 + 25 * i, 10, 10 * i + 1) for i in range(3)]
    assert find(facts_of(stepped(waits[0], steps=range(1)))) == []
    (found,) = find(facts_of(stepped(*waits, steps=range(1))))
    assert found.evidence["waits_per_step"] == 3.0
    assert found.confidence == 0.7


def test_the_profilers_own_synchronisation_is_not_the_programs():
    """Without step marks all is one step: three calls of the program, and at the end the profiler's."""
    events = []
    for i, name in enumerate(("aten::mul", "aten::sub", "aten::div")):
        at = 100 * i
        events += [
            op(name, at, 4),
            runtime("cudaLaunchKernel", at + 1, 2, correlation=i + 1),
            kernel("k", at + 5, 40, correlation=i + 1),
            runtime("cudaDeviceSynchronize", at + 10, 37),
        ]
    events += [op("aten::add", 300, 20), runtime("cudaDeviceSynchronize", 325, 5)]
    (found,) = find(facts_of(events))
    assert found.evidence["waits_per_step"] == 3.0


def test_a_wait_on_a_thread_of_its_own_is_silent():
    background = [{**event, "tid": 2} if event["pid"] == 1 else event for event in wait_for_number(10, 40)]
    assert find(facts_of(stepped(background))) == []


def test_on_the_device_a_loop_over_elements_waits_for_each():
    reads = 64
    loop = [
        event
        for i in range(reads)
        for event in (
            op("aten::item", 20 + i, 0.9),
            op("aten::_local_scalar_dense", 20.1 + i, 0.7),
            runtime("cudaStreamSynchronize", 20.2 + i, 0.5),
        )
    ]
    launch = [
        op("aten::mul", 1, 9),
        runtime("cudaLaunchKernel", 3, 2, correlation=1),
        kernel("k", 6, 90, correlation=1),
    ]
    (found,) = find(facts_of(stepped(launch, loop)))
    assert found.evidence["waits_per_step"] == 64.0


@pytest.mark.parametrize("located", [False, True])
def test_a_read_that_hardly_waits_needs_a_known_line(located):
    brief = [
        op("aten::item", 60, 0.4),
        op("aten::_local_scalar_dense", 60.1, 0.2),
        runtime("cudaStreamSynchronize", 60.15, 0.1),
    ]
    launch = [
        op("aten::mul", 11, 9),
        runtime("cudaLaunchKernel", 13, 2, correlation=1),
        kernel("k", 16, 9, correlation=1),
    ]
    located_step = [step(0, 0, 100), mark(2, 59, 9), *brief] if located else []
    facts = facts_of([*located_step, *stepped(launch, brief, steps=range(1, 5))])
    assert len(find(facts)) == located


# Recordings made elsewhere


@pytest.mark.parametrize(
    "name",
    [
        "bert_small_h100.json.gz",
        "vllm_graphs_mi300x.json.gz",
        "resnet_healthy_v100.pt.trace.json.gz",
        "resnet50_workers0_v100.pt.trace.json.gz",
        "resnet50_workers4_v100.pt.trace.json.gz",
        "mlp_launch_bound_2080ti.json.gz",
        "part_batch_sweep_a100/batch_128.json",
    ],
)
def test_recordings_without_needless_waits_stay_quiet(corpus, name):
    assert find(read_facts(corpus / "kineto" / name)) == []


def test_harmless_waits_of_a_busy_device_are_worth_less_than_three_percent(corpus):
    facts = read_facts(corpus / "kineto" / "recsys_graphed_v100.json.gz")
    found = find(facts)
    assert sum(int(suspicion.evidence["waited_ns_per_step"]) for suspicion in found) > 30_000_000
    assert all(predict_saving(facts, suspicion.edit).fraction < 0.03 for suspicion in found)


def test_repeated_copies_of_the_mask_generator_are_found(corpus):
    facts = read_facts(corpus / "kineto" / "sam_amg_baseline_a100.json.gz")
    (reads,) = device_to_host_in_step.check(facts)
    _, found = find(facts)
    assert int(reads.evidence["waited_ns_per_step"]) == pytest.approx(31e6, rel=0.01)
    assert int(found.evidence["waited_ns_per_step"]) == pytest.approx(334e6, rel=0.01)


# A loop that reads a number in each round


def read_in_rounds(at: float, operator: str, on_gpu: bool) -> list[Json]:
    """Four rounds of 100 µs: 40 on the host compute something, after 20 more its number is read for 20, with a wait."""
    events = []
    for i in range(4):
        start, number = at + 100 * i, 2 * int(at + 100 * i) + 1
        events += [
            op(operator, start, 40),
            op("aten::item", start + 60, 20),
            op("aten::_local_scalar_dense", start + 61, 18),
        ]
        events += [
            runtime("cudaLaunchKernel", start + 30, 5, correlation=number),
            kernel("k", start + 41, 4, correlation=number),
            runtime("cudaMemcpyAsync", start + 62, 2, correlation=number + 1),
            memcpy("Memcpy DtoH (Device -> Pinned)", start + 66, 2, correlation=number + 1, size_bytes=4),
            runtime("cudaStreamSynchronize", start + 65, 5),
        ] * on_gpu
    return events


def saved_in_rounds(*body: str, operator: str = "aten::linalg_vector_norm") -> tuple[float, str]:
    """Of steps of 1000 µs, with the two lines of the loop: what the finding saves, and its advice."""
    sites = tuple(CallSite("train.py", 20 + i, "clip", source) for i, source in enumerate(body))
    marks = [one for i in range(4) for one in (mark(0, 100 + 100 * i - 5, 3), mark(1, 100 + 100 * i - 1, 90))]
    events = [step(0, 0, 1000), op("aten::mm", 10, 20), *marks, *read_in_rounds(100, operator, on_gpu=False)]
    for i in range(1, 5):
        events += [
            step(i, 1000 * i, 1000),
            op("aten::mm", 1000 * i + 10, 20),
            *read_in_rounds(1000 * i + 100, operator, on_gpu=True),
        ]
    facts = facts_of(events, callsites=sites)
    (found,) = find(facts)
    return predict_saving(facts, found.edit).fraction, found.fix


HEAD = "for p in model.parameters():"


def test_a_loop_whose_rounds_are_independent_becomes_one_call():
    """Of 380 µs stay 40 of one round's operators and 10 of each of the seven pauses of 20."""
    saved, fix = saved_in_rounds(HEAD, "total += p.grad.norm().item() ** 2")
    assert saved == pytest.approx(0.27)
    assert "_foreach_norm" in fix


@pytest.mark.parametrize(
    ("line", "operator"),
    [
        ("scale = step(scale, p.grad).item()", "aten::linalg_vector_norm"),
        ("total += net(p).item()", "aten::mm"),
        ("total += net(p).item()", "mine::model"),
    ],
    ids=["a round that needs the last one's number", "a round that multiplies matrices", "one that nobody knows"],
)
def test_the_rounds_of_another_loop_stay_and_their_reads_go(line: str, operator: str):
    saved, fix = saved_in_rounds(HEAD, line, operator=operator)
    assert saved == pytest.approx(0.08)
    assert "Keep the value on the device" in fix


# A call that waits, at its line


def test_a_call_outside_of_operators_has_the_line_that_ran_between_the_same_two():
    """The located step was recorded without the runtime's calls. A line before the first operator waits there alone."""
    sites = (
        CallSite("net.py", 7, "forward", "torch.cuda.synchronize()"),
        CallSite("net.py", 9, "forward", "torch.cuda.synchronize()"),
    )
    located = [step(0, 0, 100), mark(1, 1, 3), op("aten::mm", 10, 10), mark(0, 30, 20), op("aten::mm", 60, 10)]
    waiting = [
        op("aten::mm", 10, 10),
        runtime("cudaLaunchKernel", 12, 2, correlation=1),
        kernel("k", 15, 40, correlation=1),
        runtime("cudaDeviceSynchronize", 30, 26),
        op("aten::mm", 60, 10),
        runtime("cudaLaunchKernel", 62, 2, correlation=2),
        kernel("k", 65, 30, correlation=2),
    ]
    steps = [one for i in range(1, 5) for one in (step(i, 100 * i, 100), *shifted(waiting, i))]
    (found,) = find(facts_of([*located, *steps], callsites=sites))
    assert found.location is not None
    assert (found.location.line, found.location.precision) == (7, "call")
