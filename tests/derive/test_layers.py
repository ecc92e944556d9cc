"""Repeated layers of one pass are not steps, but similar iterations of the program are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.traces import annotation, facts_of, kernel, op, python, runtime

Json = dict[str, Any]
WHOLE, PATTERN, RANGES = "the whole recording, as one step", "a pattern that repeats", "a range that repeats"
REPEATS, PERIOD = 12, 1_000


def product(at: float, out: int, rows: int = 8) -> Json:
    return op("aten::linear", at, 400, dims=[[rows, 64], [out, 64]])


def repeats(first: float = 0, count: int = REPEATS, rows: int = 8) -> list[Json]:
    """A product and an activation each, 1 ms apart."""
    starts = [first + PERIOD * i for i in range(count)]
    return [event for at in starts for event in (product(at, 64, rows), op("aten::relu", at + 500, 400))]


def embedding(at: float) -> Json:
    return op("aten::embedding", at, 400, dims=[[1000, 64], [8]])


def steps_of(*events: Json) -> tuple[int, str]:
    steps = facts_of(list(events)).steps
    return len(steps), steps.source


def test_layers_between_an_embedding_and_the_head_are_one_step():
    assert steps_of(embedding(0), *repeats(500), product(12_500, 1000)) == (1, WHOLE)


def test_identical_iterations_are_steps():
    assert steps_of(*repeats()) == (REPEATS - 1, PATTERN)


def test_layers_of_a_plain_network_are_recognised_by_their_shapes():
    """In a plain network every layer is a product and an activation, even the first and the last."""
    ends = [product(0, 32), op("aten::relu", 500, 400)], [product(13_000, 10)]
    assert steps_of(*ends[0], *repeats(1_000), *ends[1]) == (1, WHOLE)
    without = [{**event, "args": {}} for event in (*ends[0], *repeats(1_000), *ends[1])]
    assert steps_of(*without) == (REPEATS + 1, PATTERN)


def test_layers_of_several_passes_are_not_steps():
    passes = [
        event for at in (0, 14_000) for event in (embedding(at), *repeats(at + 1_000), product(at + 13_000, 1000))
    ]
    assert steps_of(*passes) == (1, WHOLE)


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ([op("aten::randn", 0, 400, dims=[[]])], [op("aten::sum", 12_500, 400, dims=[[8, 64]])]),
        ([], [product(12_500, 64, rows=5)]),  # the last batch is smaller
        ([embedding(0)], []),
        ([embedding(0)], [product(15_000, 1000)]),  # long after
    ],
)
def test_iterations_between_other_work_are_steps(before, behind):
    assert steps_of(*before, *repeats(500), *behind)[1] == PATTERN


def test_iterations_over_batches_of_different_length_are_steps():
    lengths = [event for i in range(REPEATS) for event in repeats(PERIOD * i, 1, rows=8 + i)]
    assert steps_of(*lengths) == (REPEATS - 1, PATTERN)


@pytest.mark.parametrize(("unlike", "source"), [(2, WHOLE), (3, PATTERN)])
def test_a_fifth_of_the_repeats_may_differ(unlike, source):
    """Two of the eleven repeats between the ends."""
    odd = [op("aten::linear", 500 + PERIOD * i + 950, 10, dims=[[8, 64], [7 + i, 64]]) for i in range(1, unlike + 1)]
    events = [embedding(0), *repeats(500), product(12_500, 1000)]
    inner = [{**event, "ts": event["ts"] - 400, "dur": 5} for event in odd]  # inside the activation
    assert steps_of(*events, *inner)[1] == source


@pytest.mark.parametrize(("apart", "source"), [(2_400, WHOLE), (2_401, PATTERN)])
def test_the_ends_are_within_two_repeats_of_the_layers(apart, source):
    """Measured from the end of a product, which takes 400 µs, to the start of the next."""
    last = 500 + PERIOD * (REPEATS - 1)
    behind = op("aten::norm", last + 950, 10), product(last + apart, 1000)
    assert steps_of(embedding(0), *repeats(500), *behind)[1] == source
    assert steps_of(embedding(0), *repeats(apart), product(apart + 12_000, 1000))[1] == source


def frames(calls: list[tuple[float, float]]) -> list[Json]:
    return [python("nn.Module: Net_0", at, length) for at, length in calls]


def test_repeats_within_one_module_call_are_layers():
    assert steps_of(*frames([(0, 14_000)]), *repeats(500)) == (1, WHOLE)
    inner = [python("nn.Module: Block_0", 500 + PERIOD * i, 950) for i in range(REPEATS)]
    assert steps_of(*frames([(0, 14_000)]), *inner, *repeats(500)) == (1, WHOLE)


def test_repeats_that_each_call_the_module_are_steps():
    calls = [(PERIOD * i, 950) for i in range(REPEATS)]
    assert steps_of(*frames(calls), *repeats()) == (REPEATS - 1, PATTERN)
    in_a_loop = python("train.py(1): main", 0, 13_000)
    assert steps_of(in_a_loop, *frames(calls), *repeats()) == (REPEATS - 1, PATTERN)


def test_repeats_outside_all_modules_are_steps():
    assert steps_of(*frames([(12_100, 300)]), *repeats()) == (REPEATS - 1, PATTERN)


@pytest.mark.parametrize(("together", "source"), [(6, WHOLE), (5, PATTERN)])
def test_repeats_are_layers_if_most_share_their_module_call(together, source):
    """Twelve repeats in six calls share them all. With five shared calls and two separate ones they are steps."""
    shared = [(2 * PERIOD * i, 2 * PERIOD - 50) for i in range(together)]
    own = [(PERIOD * i, PERIOD - 50) for i in range(2 * together, REPEATS)]
    assert steps_of(*frames(shared + own), *repeats())[1] == source


def test_a_range_around_each_layer_is_no_step():
    layers = [annotation("layer", 500 + PERIOD * i, 900) for i in range(REPEATS)]
    assert steps_of(*frames([(0, 14_000)]), *layers) == (1, WHOLE)
    assert steps_of(*layers) == (REPEATS - 1, RANGES)


def launching(
    at: float, of_kernel: str, number: int, name: str = "aten::linear", dims: list[list[int]] | None = None
) -> list[Json]:
    """A product that launches a kernel, and an activation."""
    return [
        op(name, at, 400, dims=dims),
        runtime("cudaLaunchKernel", at + 100, 5, correlation=number),
        kernel(of_kernel, at + 120, 50, correlation=number),
        op("aten::relu", at + 500, 400),
    ]


def stack(first: str, last: str, shapes: bool = False) -> list[Json]:
    """Repeats of one kernel between two others. With shapes, these all differ."""
    names = [first, *["gemm"] * REPEATS, last]
    dims = [[[8, 64 + i], [64 + i, 65 + i]] if shapes else None for i in range(len(names))]
    return [event for i, one in enumerate(names) for event in launching(PERIOD * i, one, i + 1, dims=dims[i])]


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize(
    ("first", "last", "source"),
    [
        ("implicit_gemm", "gemv", WHOLE),
        ("gemm", "gemm", PATTERN),
        ("implicit_gemm", "gemm", PATTERN),  # a first pass that chose otherwise
        ("gemm", "gemv", PATTERN),
    ],
)
def test_without_shapes_or_where_all_differ_kernels_tell_the_ends(first, last, source, shapes):
    assert steps_of(*stack(first, last, shapes))[1] == source


def test_equal_shapes_tell_more_than_kernels():
    """Kernels may change with the clock, the alignment or the autotuner's choice."""
    same = [
        event
        for i, one in enumerate(["a", *["gemm"] * REPEATS, "b"])
        for event in launching(PERIOD * i, one, i + 1, dims=[[8, 64], [64, 64]])
    ]
    assert steps_of(*same)[1] == PATTERN
