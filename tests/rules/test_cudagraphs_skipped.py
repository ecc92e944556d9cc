"""CUDA graphs that were requested and skipped, and calls that launch a graph, warm one up, or never requested one."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.cudagraphs_skipped import cudagraphs_skipped
from profkit.run.directory import CallSite, Compilation, Compiled, Run, SkippedGraph
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, op, python, rows_named, runtime, step

Json = dict[str, Any]
WRITES = CallSite("model.py", 9, "update", "memory.add_(y)")
CALLER = CallSite("model.py", 4, "forward", "self.update(y)")
MUTATED = SkippedGraph("mutated inputs (1 instances)", (CALLER, WRITES))
FORWARD = Compilation(0, CallSite("model.py", 2, "forward"), 10**9)
MANAGED = "torch/_inductor/cudagraph_trees.py(410): deferred_cudagraphify"


def find(events: list[Json], run: Run | None = None):
    facts = facts_of(events, run=run)
    found: list[Suspicion] = list(cudagraphs_skipped.check(facts))
    return found, facts


def recorded(*skipped: SkippedGraph) -> Run:
    return Run(torch="2.13", compiled=Compiled((), (FORWARD,), 10**10, skipped))


def call(
    at: float,
    launches: int = 10,
    inside: str = MANAGED,
    region: str = "0/0",
    name: str = "cudaLaunchKernel",
) -> list[Json]:
    """A compiled function of 900 µs that launches a kernel of 10 µs every 80 µs."""
    events = [op(f"Torch-Compiled Region: {region}", at, 900), python(inside, at + 10, 880)]
    for i in range(launches):
        start, correlation = at + 50 + 80 * i, int(at) + i + 1
        events += [
            runtime(name, start, 5, correlation=correlation),
            kernel("triton_add", start + 8, 10, correlation=correlation),
        ]
    return events


def steps_of(*calls: list[Json], length: float = 1000) -> list[Json]:
    return [event for i, part in enumerate(calls) for event in (step(i, length * i, length), *part)]


def four(**how: Any) -> list[Json]:
    return steps_of(*(call(1000 * i, **how) for i in range(4)))


def test_all_launches_of_a_call_but_one_are_saved():
    (found,), facts = find(four(), recorded(MUTATED))
    # Launching lasts from 50 to 775 µs; one launch of 5 µs is kept.
    assert found.rows.tolist() == rows_named(facts.trace, "cudaLaunchKernel")
    assert found.evidence == {"launches_per_step": 10, "launching_ns_per_step": 725_000}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.72, abs=0.09)


def test_the_innermost_line_of_the_compilers_reason_is_reported():
    (found,), _ = find(four(), recorded(MUTATED))
    assert [(place.file, place.line) for place in (found.location, *found.also)] == [("model.py", 9), ("model.py", 4)]
    assert "that were asked for: mutated inputs (1 instances). 10 kernels a step are launched" in found.message
    assert found.fix.startswith("Return the new value instead of writing it into an input")


def test_without_a_record_the_graph_managers_python_frames_are_enough():
    (found,), facts = find(four())
    assert found.rows.tolist() == rows_named(facts.trace, "cudaLaunchKernel")
    assert "TORCH_LOGS=cudagraphs" in found.fix


def test_a_function_without_requested_graphs_is_silent():
    plain = four(inside="torch/_inductor/output_code.py(628): __call__")
    assert find(plain)[0] == []
    assert find(plain, recorded())[0] == []


def test_a_call_that_launches_a_graph_is_silent():
    assert find(four(name="cudaGraphLaunch"))[0] == []


def test_warm_up_calls_before_the_graph_exists_are_silent():
    warm, graph = call(0), call(1000, launches=1, name="cudaGraphLaunch")
    later = [call(1000 * i, launches=1, name="cudaGraphLaunch") for i in (2, 3)]
    assert find(steps_of(warm, graph, *later))[0] == []


@pytest.mark.parametrize(("launches", "reported"), [(2, 1), (1, 0)])
def test_a_call_with_a_single_launch_is_silent(launches, reported):
    assert len(find(four(launches=launches))[0]) == reported


def test_launches_of_other_compiled_functions_are_not_counted():
    both = steps_of(*([*call(2000 * i), *call(2000 * i + 1000, region="1/0")] for i in range(4)), length=2000)
    (found,), _ = find(both, recorded(MUTATED))
    assert found.count == 10


def test_the_compilers_number_selects_the_function():
    both = steps_of(*([*call(2000 * i), *call(2000 * i + 1000, 4, region="1/0")] for i in range(4)), length=2000)
    (found,), _ = find(both, recorded(SkippedGraph("cpu device (arg0_1)", (), 1)))
    assert found.count == 4
    assert found.fix.startswith("Make the tensor on the GPU")


def test_without_frames_or_a_record_it_cannot_look():
    events = [event for event in four() if event["cat"] != "python_function"]
    with pytest.raises(CannotLook, match="with_stack=True"):
        find(events)


def test_it_cannot_look_at_recordings_that_lack_skipped_graphs():
    with pytest.raises(CannotLook, match="was not recorded"):
        find(four(), Run(torch="2.11", compiled=Compiled((), (FORWARD,), 10**10)))


def test_a_program_that_compiles_nothing_is_silent():
    assert find([step(0, 0, 100), op("aten::mm", 1, 9), kernel("gemm", 5, 40)])[0] == []
