"""GPU memory that each step releases to the driver, and memory that is only allocated or belongs elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Severity
from profkit.rules.allocator_flush_in_step import allocator_flush_in_step
from profkit.rules.base import CannotLook, Suspicion
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, python, rows_named, runtime, step

Json = dict[str, Any]
EMPTY = CallSite("train.py", 9, "train", "torch.cuda.empty_cache()")
MODEL = CallSite("train.py", 8, "train", "y = model(x)")


def find(facts) -> list[Suspicion]:
    return list(allocator_flush_in_step.check(facts))


def launching(at: float, *within: Json) -> list[Json]:
    """A matrix product of 40 µs on the host and 10 µs on the GPU; ``within`` are further events inside its operator."""
    number = int(at) + 1
    return [
        op("aten::mm", at, 40),
        *within,
        runtime("cudaLaunchKernel", at + 30, 5, correlation=number),
        kernel("gemm", at + 41, 10, correlation=number),
    ]


def stepped(*parts: list[Json], first: int = 0) -> list[Json]:
    """Steps of 1000 µs with products at 100 and 800 µs. ``parts`` are more events of each, timed from its start."""
    events = []
    for i, part in enumerate(parts, first):
        moved = [{**event, "ts": event["ts"] + 1000 * i} for event in part]
        events += [step(i, 1000 * i, 1000), *launching(1000 * i + 100), *moved, *launching(1000 * i + 800)]
    return events


def flush(free: str = "cudaFree", get: str = "cudaMalloc", free_us: float = 150) -> list[Json]:
    """Two blocks are freed after the first product, and two are allocated in the second."""
    return [
        runtime(free, 300, free_us),
        runtime(free, 300 + free_us, free_us),
        runtime(get, 801, 10),
        runtime(get, 812, 10),
    ]


def test_a_flush_in_each_step_costs_its_frees_and_the_allocations_after_it():
    facts = facts_of(stepped(*[flush()] * 4))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "cudaFree")
    assert found.evidence == {"frees_per_step": 2.0, "time_ns_per_step": 320_000}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.32)
    assert "to the driver twice a step, and requests memory twice a step" in found.message


@pytest.mark.parametrize(
    ("free", "get"),
    [
        ("hipFree", "hipMalloc"),
        ("cuMemUnmap", "cuMemMap"),
        ("cuMemRelease", "cuMemCreate"),
        ("cuMemAddressFree", "cuMemSetAccess"),
        ("cuMemFree_v2", "cuMemAlloc_v2"),
    ],
)
def test_frees_by_other_drivers_and_of_expandable_segments_cost_the_same(free, get):
    facts = facts_of(stepped(*[flush(free, get)] * 4))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.32)


@pytest.mark.parametrize(
    "calls",
    [
        [runtime("cudaMalloc", 300, 300)],
        [runtime("cudaFreeHost", 300, 300)],
        [runtime("cudaFreeAsync", 300, 300)],
        [runtime("cudaFree", 300, 300, tid=2)],
    ],
    ids=["only asked for", "the host's memory", "the driver's own pool", "another thread"],
)
def test_calls_that_give_no_gpu_memory_back_are_silent(calls):
    assert find(facts_of(stepped(*[calls] * 4))) == []


@pytest.mark.parametrize(("flushing", "reported"), [(1, 0), (2, 1)])
def test_flushes_in_fewer_than_half_of_the_steps_are_silent(flushing, reported):
    assert len(find(facts_of(stepped(*[flush()] * flushing, *[[]] * (4 - flushing))))) == reported


@pytest.mark.parametrize(("free_us", "reported"), [(2.5, 1), (2.4, 0)])
def test_flushes_below_half_a_percent_of_the_step_are_silent(free_us, reported):
    """Two frees of 2.5 µs are 5 of 1,000 µs."""
    freed = [runtime("cudaFree", 300, free_us), runtime("cudaFree", 310, free_us)]
    assert len(find(facts_of(stepped(*[freed] * 4)))) == reported


def test_a_flush_in_a_step_that_captures_a_graph_is_silent():
    capture = [runtime("cudaStreamBeginCapture", 700, 5), runtime("cudaStreamEndCapture", 710, 5)]
    assert find(facts_of(stepped(*[[*flush(), *capture]] * 4))) == []


def test_memory_freed_during_compilation_is_silent():
    compiling = op("_compile.compile_inner (dynamo_timed)", 299, 400)
    assert find(facts_of(stepped(*[[compiling, *flush()[:2]]] * 4))) == []


def test_a_free_before_the_first_kernel_is_silent():
    begin = [step(0, 0, 1000), runtime("cudaFree", 10, 900)]
    assert find(facts_of([*begin, *launching(950)])) == []


@pytest.mark.parametrize(("later_us", "reported"), [(50, 0), (3_000, 1)])
def test_what_a_library_frees_when_it_sets_itself_up_is_silent(later_us, reported):
    """The first convolution works for 5 ms beside the free in it; if later ones take as long, it is no first call."""
    events = [
        step(0, 0, 20_000),
        *launching(100),
        op("aten::cudnn_convolution", 1_000, 8_000),
        runtime("cudaFree", 2_000, 3_000),
        runtime("cudaLaunchKernel", 8_900, 5, correlation=1),
        kernel("conv", 8_950, 10, correlation=1),
        op("aten::cudnn_convolution", 10_000, later_us),
        runtime("cudaLaunchKernel", 10_010, 5, correlation=2),
        kernel("conv", 10_020, 10, correlation=2),
    ]
    assert len(find(facts_of(events))) == reported


def test_in_a_single_step_only_allocations_after_the_frees_are_counted():
    before = [runtime("cudaMalloc", 200, 50)]
    facts = facts_of(stepped([*before, *flush()]))
    (found,) = find(facts)
    assert found.confidence == 0.6
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.32)
    assert "in the only recorded step" in found.message


def test_a_wait_right_before_the_frees_is_saved_too():
    waiting = runtime("cudaDeviceSynchronize", 250, 50)
    facts = facts_of(stepped(*[[waiting, *flush()]] * 4))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.37)


def test_a_wait_with_an_operator_between_it_and_the_frees_is_kept():
    waiting = [op("aten::item", 250, 20), runtime("cudaStreamSynchronize", 251, 18)]
    facts = facts_of(stepped(*[[*waiting, *flush()]] * 4))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.32)


def test_a_python_frame_of_empty_cache_is_named_and_saved_too():
    frame = python("torch/cuda/memory.py(212): empty_cache", 290, 320)
    facts = facts_of(stepped(*[[frame, *flush()]] * 4))
    (found,) = find(facts)
    assert found.message.startswith("`empty_cache()` returns")
    assert "Remove the call" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.34, abs=0.001)


def test_the_reported_line_ran_between_the_same_operators_in_the_located_step():
    """The located step was recorded without runtime calls: the first product, `empty_cache()`, the second product."""
    located = [
        step(0, 0, 1000),
        mark(0, 90, 60),
        op("aten::mm", 100, 40),
        mark(1, 300, 30),
        mark(0, 790, 60),
        op("aten::mm", 800, 40),
    ]
    facts = facts_of([*located, *stepped(*[flush()] * 4, first=1)], callsites=(MODEL, EMPTY))
    (found,) = find(facts)
    assert (found.location.file, found.location.line) == ("train.py", 9)
    assert found.message.startswith("`empty_cache()` returns")


def test_a_line_elsewhere_in_the_step_is_not_named():
    located = [
        step(0, 0, 1000),
        mark(1, 20, 30),
        mark(0, 90, 60),
        op("aten::mm", 100, 40),
        mark(0, 790, 60),
        op("aten::mm", 800, 40),
    ]
    facts = facts_of([*located, *stepped(*[flush()] * 4, first=1)], callsites=(MODEL, EMPTY))
    (found,) = find(facts)
    assert found.location is None
    assert found.message.startswith("Something outside PyTorch's operators")


def test_frees_inside_an_operator_are_reported_as_finding_no_room():
    retry = [runtime("cudaMalloc", 801, 2), runtime("cudaFree", 804, 15), runtime("cudaMalloc", 820, 5)]
    facts = facts_of(stepped(*[retry] * 4))
    (found,) = find(facts)
    assert "is short of memory" in found.message
    assert "smaller batch" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.022)


def test_without_a_gpu_the_line_is_reported_with_severity_info():
    located = [step(0, 0, 1000), mark(0, 90, 60), op("aten::mm", 100, 40), mark(1, 300, 30)]
    others = [event for i in (1, 2) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i + 100, 40))]
    (found,) = find(facts_of([*located, *others], callsites=(MODEL, EMPTY)))
    assert (found.location.line, found.count, found.severity) == (9, 1, Severity.INFO)
    assert find(facts_of([*located, *others], callsites=(MODEL, MODEL))) == []


@pytest.mark.parametrize(
    ("source", "is_known"),
    [
        ("memory.empty_cache(), report(", True),
        ("count += 1  # no torch.cuda.empty_cache() here", False),
        ("log('torch.cuda.empty_cache() is slow')", False),
        ("clean = torch.cuda.empty_cache", False),
    ],
)
def test_only_a_line_that_calls_empty_cache_is_reported(source: str, is_known: bool):
    located = [step(0, 0, 1000), mark(0, 90, 60), op("aten::mm", 100, 40), mark(1, 300, 30)]
    others = [event for i in (1, 2) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i + 100, 40))]
    there = CallSite("train.py", 9, "train", source)
    assert bool(find(facts_of([*located, *others], callsites=(MODEL, there)))) is is_known


def test_without_a_gpu_and_without_lines_the_rule_cannot_look():
    with pytest.raises(CannotLook, match="which lines ran was not recorded"):
        find(facts_of([step(0, 0, 100), op("aten::mm", 10, 20)]))


def test_without_runtime_calls_the_rule_cannot_look():
    with pytest.raises(CannotLook, match="calls of the GPU's runtime"):
        find(facts_of([step(0, 0, 100), op("aten::mm", 10, 20, external=5), kernel("gemm", 15, 20, external=5)]))
