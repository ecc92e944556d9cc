"""Tensors repeated in memory for arithmetic that would broadcast, and repetitions that are needed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.materialised_broadcast import materialised_broadcast
from profkit.run.directory import CallSite, DataFlow, JoinedCopies, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
SMALL, LARGE = [64, 1, 32], [64, 16, 32]
SMALL_BYTES, LARGE_BYTES = 4 * 64 * 32, 4 * 64 * 16 * 32


def find(facts) -> list[Suspicion]:
    return list(materialised_broadcast.check(facts))


def repeat(at: float, shape: list[int] = SMALL, times: str = "[1, 16, 1]", name: str = "repeat") -> Json:
    return op(f"aten::{name}", at, 20, dims=[shape, []], types=["float", "ScalarList"], concrete=["", times])


def binary(at: float, first: list[int] = LARGE, second: list[int] = LARGE, name: str = "sub") -> Json:
    return op(f"aten::{name}", at, 30, dims=[first, second, []], types=["float", "float", "Scalar"])


def recording(*events: Json, steps: int = 4) -> Any:
    """Steps of 200 µs, each with these events."""
    moved = [{**event, "ts": event["ts"] + 200 * i} for i in range(steps) for event in events]
    return facts_of([*(step(i, 200 * i, 200) for i in range(steps)), *moved])


def test_the_repetition_vanishes_and_its_reader_moves_less():
    facts = recording(repeat(10), binary(40))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::repeat")
    assert found.evidence == {"repeated_bytes_per_step": LARGE_BYTES, "source_bytes_per_step": SMALL_BYTES}
    reader_saves = 30 * (LARGE_BYTES - SMALL_BYTES) / (3 * LARGE_BYTES)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((20 + reader_saves) / 200, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "reported"), [("pairwise_distance", True), ("cosine_similarity", True), ("cdist", False), ("bmm", False)]
)
def test_functions_of_pairs_of_vectors_match_shapes_by_themselves(name: str, reported: bool):
    assert bool(find(recording(repeat(10), binary(40, name=name)))) is reported


def test_two_repetitions_for_one_operator_save_both_of_its_reads():
    other = repeat(32, [1, 16, 32], "[64, 1, 1]")
    facts = recording(repeat(10), other, binary(60))
    (found,) = find(facts)
    less = 2 * LARGE_BYTES - SMALL_BYTES - 4 * 16 * 32
    saved = 40 + 30 * less / (3 * LARGE_BYTES)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(saved / 200, abs=1e-4)


@pytest.mark.parametrize(
    ("small", "times", "large", "walking_us"),
    [
        ([64, 1, 16], "[1, 64, 1]", [64, 64, 16], 0),  # rows of 16 are long
        ([64, 1, 15], "[1, 64, 1]", [64, 64, 15], 4096 * 0.004),
        ([64, 1, 3], "[1, 256, 1]", [64, 256, 3], 20),  # no longer than the repetition itself took
        ([64, 4, 1], "[1, 1, 64]", [64, 4, 64], 0),  # one number for a row of 64
        ([1, 4, 4, 4], "[256, 1, 1, 1]", [256, 4, 4, 4], 0),  # 64 in order
    ],
)
def test_short_rows_are_walked_over_by_the_reader_as_they_were_by_the_repetition(small, times, large, walking_us):
    facts = recording(repeat(10, small, times), binary(40, large, large))
    (found,) = find(facts)
    less = math.prod(large) - math.prod(small)
    reader_us = max(30 * (1 - less / (3 * math.prod(large))), walking_us)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((50 - reader_us) / 200, abs=1e-3)
    cheap = binary(40, large, large)
    facts = recording(repeat(10, small, times), {**cheap, "dur": 1})
    if walking_us:
        (found,) = find(facts)
        expected = max((21 - walking_us) / 200, 0)
        assert predict_saving(facts, found.edit).fraction == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("at", "is_reported"), [(2, True), (35, False), (75, True)])
def test_without_data_flow_what_writes_in_place_in_between_may_change_the_copies(at: int, is_reported: bool):
    written = op("aten::fill_", at, 1, dims=[[9], []], types=["float", "Scalar"])
    assert bool(find(recording(repeat(10), binary(40), written))) is is_reported


@pytest.mark.parametrize("name", ["repeat", "tile"])
def test_new_leading_dimensions_count(name):
    assert len(find(recording(repeat(10, [16, 32], "[64, 1, 1]", name), binary(40)))) == 1


def test_interleaving_along_a_dimension_of_size_one_counts():
    event = op(
        "aten::repeat_interleave",
        10,
        20,
        dims=[SMALL, [], [], []],
        types=["float", "Scalar", "Scalar", ""],
        concrete=["", "16", "-2", ""],
    )
    assert len(find(recording(event, binary(40)))) == 1


def copied(at: float, shape: list[int] = LARGE) -> Json:
    return op("aten::contiguous", at, 10, dims=[shape, []], types=["float", "Scalar"])


def test_tensors_that_are_expanded_together_are_each_copied_in_turn():
    together = op("aten::broadcast_tensors", 10, 2, dims=[[SMALL, [1, 16, 32]]], types=["TensorList"])
    (found,) = find(recording(together, copied(20), copied(40), binary(60)))
    small = SMALL_BYTES + 4 * 16 * 32
    assert found.evidence == {"repeated_bytes_per_step": 2 * LARGE_BYTES, "source_bytes_per_step": small}


def test_of_tensors_that_are_expanded_together_a_whole_one_is_not_repeated():
    together = op("aten::broadcast_tensors", 10, 2, dims=[[LARGE, SMALL]], types=["TensorList"])
    (found,) = find(recording(together, copied(20), copied(40), binary(60)))
    assert found.evidence["source_bytes_per_step"] == SMALL_BYTES


def test_a_view_between_the_expansion_and_the_copy_is_passed_over():
    expand = op("aten::expand", 10, 1, dims=[SMALL, [], []], types=["float", "ScalarList", "Scalar"])
    view = op("aten::detach", 15, 1, dims=[LARGE], types=["float"])
    assert len(find(recording(expand, view, copied(20), binary(60)))) == 1


def test_the_expansion_of_another_tensor_counts_for_nothing():
    expand = op("aten::expand", 10, 1, dims=[[16, 1, 8], [], []], types=["float", "ScalarList", "Scalar"])
    assert find(recording(expand, copied(20), binary(60))) == []
    used = op("aten::mul", 15, 1, dims=[LARGE, LARGE], types=["float", "float"])
    expand = op("aten::expand", 10, 1, dims=[SMALL, [], []], types=["float", "ScalarList", "Scalar"])
    assert find(recording(expand, used, copied(20), binary(60))) == []


@pytest.mark.parametrize("name", ["contiguous", "clone"])
@pytest.mark.parametrize(("shape", "reported"), [(SMALL, 1), (LARGE, 0)])
def test_a_copy_of_an_expanded_tensor_counts_where_it_had_grown(name, shape, reported):
    expand = op("aten::expand", 10, 1, dims=[shape, [], []], types=["float", "ScalarList", "Scalar"])
    copy = op(f"aten::{name}", 12, 20, dims=[LARGE, []], types=["float", "Scalar"])
    assert len(find(recording(expand, copy, binary(40)))) == reported


def test_a_copy_of_what_was_not_expanded_is_silent():
    copy = op("aten::contiguous", 12, 20, dims=[LARGE, []], types=["float", "Scalar"])
    assert find(recording(copy, binary(40))) == []


def test_tiled_rows_are_silent():
    assert find(recording(repeat(10, [32, 32], "[32, 1]"), binary(40, [1024, 32], [1024, 32]))) == []


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(op("aten::cat", 40, 9, dims=[[LARGE, LARGE], []], types=["TensorList", "Scalar"]), id="cat"),
        pytest.param(op("aten::matmul", 40, 9, dims=[LARGE, [64, 32, 8]], types=["float", "float"]), id="product"),
        pytest.param(op("aten::index_put_", 40, 9, dims=[LARGE, [], [9]], types=["float", "", "float"]), id="written"),
        pytest.param(op("aten::relu", 40, 9, dims=[LARGE], types=["float"]), id="alone"),
    ],
)
def test_a_result_that_is_first_used_otherwise_is_silent(use):
    assert find(recording(repeat(10), use)) == []


def test_arithmetic_after_another_use_is_silent():
    use = op("aten::cat", 40, 9, dims=[[LARGE, LARGE], []], types=["TensorList", "Scalar"])
    assert find(recording(repeat(10), use, binary(60))) == []


def test_a_layer_computes_the_same_for_each_copy():
    """Of sixteen copies one has to be computed, forwards and backwards."""
    layer = op("aten::linear", 40, 32, dims=[LARGE, [8, 32], [8]], types=["float"] * 3, sequence=7)
    node = op("autograd::engine::evaluate_function: AddmmBackward0", 100, 48, tid=2, sequence=7)
    facts = recording(repeat(10), layer)
    (found,) = find(facts)
    assert "a product with the same weights" in found.message
    assert predict_saving(facts, found.edit).fraction == pytest.approx((20 + 32 * 15 / 16) / 200, abs=1e-4)
    with_backward = facts_of([step(0, 0, 200), repeat(10), layer, node])
    (found,) = find(with_backward)
    assert predict_saving(with_backward, found.edit).fraction == pytest.approx((20 + 80 * 15 / 16) / 200, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "dims", "reported"),
    [
        ("linear", [LARGE, [8, 32]], True),
        ("matmul", [LARGE, [32, 8]], True),
        ("matmul", [[8, 16], LARGE], False),
        ("matmul", [LARGE, [64, 32, 8]], False),
        ("matmul", [LARGE, [32]], False),
        ("bmm", [LARGE, [64, 32, 8]], False),
    ],
)
def test_only_a_matrix_on_the_right_is_the_same_for_all_copies(name: str, dims: list[list[int]], reported: bool):
    use = op(f"aten::{name}", 40, 9, dims=dims, types=["float", "float"])
    assert bool(find(recording(repeat(10), use))) is reported


@pytest.mark.parametrize(
    ("shape", "times", "name", "dims", "reported"),
    [
        ([1, 4096], "[64, 1]", "mm", [[64, 4096], [4096, 8]], True),
        ([1, 4096], "[64, 1]", "addmm", [[8], [64, 4096], [4096, 8]], True),
        ([1, 4096], "[64, 1]", "mm", [[8, 64], [64, 4096]], False),
        ([64, 1], "[1, 4096]", "mm", [[64, 4096], [4096, 8]], False),
    ],
)
def test_copies_of_whole_rows_are_weighed_alike(
    shape: list[int], times: str, name: str, dims: list[list[int]], reported: bool
):
    """Not copies within a row, nor rows over which the product sums."""
    use = op(f"aten::{name}", 40, 9, dims=dims, types=["float"] * len(dims))
    assert bool(find(recording(repeat(10, shape, times), use))) is reported


def test_arithmetic_on_the_result_alone_and_views_are_passed_over():
    between = [
        op("aten::relu", 32, 3, dims=[LARGE], types=["float"]),
        op("aten::select", 36, 3, dims=[LARGE, [], []], types=["float"]),
    ]
    assert len(find(recording(repeat(10), *between, binary(60)))) == 1


@pytest.mark.parametrize(("others", "reported"), [(7, 1), (8, 0)])
def test_the_result_is_looked_for_in_eight_operators(others, reported):
    between = [op("aten::relu", 32 + 4 * i, 3, dims=[[9]], types=["float"]) for i in range(others)]
    assert len(find(recording(repeat(10), *between, binary(100)))) == reported


def test_the_search_ends_with_the_step():
    events = [step(0, 0, 100), step(1, 100, 100), step(2, 200, 100), step(3, 300, 100)]
    for i in range(4):
        events += [binary(100 * i + 5), repeat(100 * i + 70)]
    assert find(facts_of(events)) == []


@pytest.mark.parametrize(("times", "reported"), [(32, 1), (31, 0)])
def test_64_kibibytes_are_the_least(times, reported):
    event = repeat(10, [1, 512], f"[{times}, 1]")
    assert len(find(recording(event, binary(40, [times, 512], [times, 512])))) == reported


def test_each_line_is_a_finding():
    sites = tuple(CallSite("pairs.py", line, "pairs") for line in (10, 20))
    both = [repeat(10), binary(40), repeat(110), binary(140)]
    first = [step(0, 0, 200), mark(0, 5, 80), mark(1, 105, 80), *both]
    later = [{**event, "ts": event["ts"] + 200 * i} for i in (1, 2) for event in both]
    facts = facts_of([*first, step(1, 200, 200), step(2, 400, 200), *later], callsites=sites)
    assert sorted(facts.callsites[facts.lines.site[found.rows[0]]].line for found in find(facts)) == [10, 20]


def test_on_a_device_the_kernels_shrink():
    launches = [runtime("cudaLaunchKernel", at, 2, correlation=i + 1) for i, at in enumerate((11, 41))]
    kernels = [kernel("copy", 15, 60, correlation=1), kernel("sub", 75, 90, correlation=2)]
    facts = facts_of([step(0, 0, 200), repeat(10), binary(40), *launches, *kernels])
    (found,) = find(facts)
    assert found.edit is not None
    kept = 90_000 * (1 - (LARGE_BYTES - SMALL_BYTES) / (3 * LARGE_BYTES))
    assert found.edit.work_kept_ns.tolist() == [0, pytest.approx(kept, abs=1)]


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::repeat", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, materialised_broadcast.needs)


@pytest.mark.parametrize(
    ("taken", "reads", "is_reported"),
    [((0, -2), (), True), ((1, -2), (), False), ((2, -2), (), True), ((0, -2), (1,), False)],
    ids=["as it is", "written to", "negated", "as an array, too"],
)
def test_copies_that_something_writes_to_differ(taken: tuple[int, ...], reads: tuple[int, ...], is_reported: bool):
    """In the located step calls repeat a tensor, write to it, negate it, and subtract from what one of them made."""
    negated = op("aten::neg", 34, 1, dims=[[8, 8]], types=["float"])
    calls = [repeat(10), op("aten::fill_", 32, 1, dims=[[7]], types=["float"]), negated, binary(40)]
    marks = [annotation(f"{CALL_MARK}{n}", call["ts"] - 0.2, call["dur"] + 0.4) for n, call in enumerate(calls)]
    located = [mark(0, 5, 190), *marks]
    flow = DataFlow(((-1,), (0,), (0,), taken), reads=reads)
    moved = [{**event, "ts": event["ts"] + 200 * i} for i in range(4) for event in calls]
    steps = [step(i, 200 * i, 200) for i in range(4)]
    facts = facts_of([*steps, *located, *moved], callsites=(CallSite("a.py", 1, "f", "f(x)"),), run=Run(flow=flow))
    assert bool(find(facts)) is is_reported


ROW, TABLE = (32, 64), [32, 16, 64]
"""A tensor that is stacked sixteen times along its second dimension, and the result."""


def stacked(
    *users: Json,
    takes: tuple[tuple[int, ...], ...] = ((-1, -1), (0, -2)),
    copies: tuple[JoinedCopies, ...] = (JoinedCopies(0, ROW, 16, 4),),
    dim: str = "1",
    name: str = "stack",
) -> Any:
    """Measured steps and a located one, each with a stack of 20 µs, of whose many tensors the profiler wrote no shapes,
    and with what follows it."""
    join = op(f"aten::{name}", 10, 20, dims=[[], []], types=["TensorList", "Scalar"], concrete=["", dim])
    events = [step(i, 200 * i, 200) for i in range(4)]
    for i in range(4):
        for number, event in enumerate((join, *users)):
            at = event["ts"] + 200 * i
            events.append({**event, "ts": at})
            if i == 3:
                length = event["dur"] + 1
                events += [mark(number, at - 1, length + 2), annotation(f"{CALL_MARK}{number}", at - 0.5, length)]
    sites = tuple(CallSite("caps.py", 5 + number, "forward", "x = f(x)") for number in range(1 + len(users)))
    return facts_of(events, callsites=sites, run=Run(flow=DataFlow(takes, copies=copies)))


def test_a_tensor_stacked_many_times_is_repeated_however_many_there_are():
    facts = stacked(binary(60, TABLE, TABLE))
    (found,) = find(facts)
    assert found.evidence == {"repeated_bytes_per_step": 4 * 32 * 16 * 64, "source_bytes_per_step": 4 * 32 * 64}
    reader_saves = 30 * 15 / 16 / 3
    assert predict_saving(facts, found.edit).fraction == pytest.approx((20 + reader_saves) / 200, abs=1e-4)


@pytest.mark.parametrize(
    ("user", "reported"),
    [
        pytest.param(binary(60, [32, 16, 64, 1], [32, 16, 64, 5]), True, id="a view adds a dimension"),
        pytest.param(binary(60, [32, 16, 64], [32, 16, 64], name="mul_"), False, id="written to"),
        pytest.param(op("aten::relu", 60, 30, dims=[TABLE]), True, id="alone"),
        pytest.param(op("aten::dropout", 60, 30, dims=[TABLE, [], []]), False, id="at random"),
        pytest.param(op("aten::conv1d", 60, 30, dims=[TABLE, [8, 16, 3]]), False, id="a convolution"),
        pytest.param(op("aten::linear", 60, 30, dims=[TABLE, [8, 64]]), True, id="a layer"),
        pytest.param(binary(60, [9, 9], [9, 9]), False, id="other shapes"),
    ],
)
def test_of_joined_copies_the_data_flow_tells_who_takes_them(user: Json, reported: bool):
    assert bool(find(stacked(user))) is reported


def test_joined_copies_that_something_else_is_multiplied_by_in_place_are_repeated():
    assert len(find(stacked(binary(60, TABLE, TABLE, name="mul_"), takes=((-1, -1), (-2, 0))))) == 1


def test_joined_copies_that_something_writes_to_are_needed():
    written = op("aten::fill_", 40, 5, dims=[[9], []])
    facts = stacked(written, binary(60, TABLE, TABLE), takes=((-1, -1), (0,), (1, -2)))
    assert find(facts) == []


def test_what_computes_on_each_copy_alike_keeps_the_share_of_one():
    """The sine of 30 µs keeps its call of 5 µs, the join of 20 µs goes, and the sum of 30 µs reads less."""
    users = op("aten::sin", 40, 30, dims=[TABLE]), binary(80, TABLE, TABLE)
    facts = stacked(*users, takes=((-1, -1), (0,), (1, -2)))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((25 + 20 + 10 * 15 / 16) / 200, abs=1e-3)


@pytest.mark.parametrize(
    "last", [op("aten::conv1d", 80, 30, dims=[TABLE, [8, 16, 3]]), op("aten::cumsum", 80, 30, dims=[TABLE])]
)
def test_copies_that_are_needed_in_the_end_are_joined_then(last: Json):
    facts = stacked(op("aten::sin", 40, 30, dims=[TABLE]), last, takes=((-1, -1), (0,), (1,)))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(25 / 200, abs=1e-3)


@pytest.mark.parametrize(
    "mixing",
    [
        binary(40, TABLE, TABLE),
        op("aten::mm", 40, 30, dims=[TABLE[1:], [64, 8]]),
        op("aten::sort", 40, 30, dims=[TABLE]),
    ],
)
def test_what_mixes_copies_with_others_ends_the_chain(mixing: Json):
    """What comes after it is not on copies."""
    facts = stacked(mixing, op("aten::sin", 80, 30, dims=[TABLE]), takes=((-1, -1), (0, -2), (1,)))
    assert all(predict_saving(facts, one.edit).fraction < 35 / 200 for one in find(facts))


@pytest.mark.parametrize(
    ("copies", "dim", "name", "reported"),
    [
        ((JoinedCopies(0, (32, 1, 64), 16, 4),), "1", "cat", True),
        ((JoinedCopies(0, (32, 1, 64), 16, 4),), "-2", "cat", True),
        ((JoinedCopies(0, (32, 4, 64), 4, 4),), "1", "cat", False),
        ((), "1", "stack", False),
        ((JoinedCopies(0, ROW, 16, 4),), "7", "stack", False),
        ((JoinedCopies(0, ROW, 16, 4),), "", "stack", False),
        ((JoinedCopies(0, (32, -64), 16, 4),), "1", "stack", False),
        ((JoinedCopies(0, (32, 1 << 60), 16, 4),), "1", "stack", False),
        ((JoinedCopies(0, ROW, 16, 1 << 60),), "1", "stack", False),
        ((JoinedCopies(77, ROW, 16, 4),), "1", "stack", False),
    ],
)
def test_tiles_are_no_copies_along_a_dimension_of_size_one(
    copies: tuple[JoinedCopies, ...], dim: str, name: str, reported: bool
):
    assert bool(find(stacked(binary(60, TABLE, TABLE), copies=copies, dim=dim, name=name))) is reported


def test_a_matrix_copied_for_a_batch_of_products_saves_its_copies_alone():
    product = op("aten::bmm", 60, 30, dims=[[16, 32, 64], [16, 64, 8]])
    facts = stacked(product, dim="0")
    (found,) = find(facts)
    assert "a batch of products" in found.message
    assert "einsum" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(20 / 200, abs=1e-4)


@pytest.mark.parametrize(
    ("shape", "times", "dims", "reported"),
    [
        ([1, 32, 64], "[16, 1, 1]", [[16, 32, 64], [16, 64, 8]], True),
        ([1, 32, 64], "[16, 1, 1]", [[16, 8, 32], [16, 32, 64]], True),
        ([4, 1, 32, 64], "[1, 16, 1, 1]", [[4, 16, 32, 64], [4, 16, 64, 8]], True),
        ([16, 1, 64], "[1, 32, 1]", [[16, 32, 64], [16, 64, 8]], False),
    ],
)
def test_only_whole_matrices_are_shared_by_a_batch(shape: Any, times: str, dims: Any, reported: bool):
    use = op("aten::matmul", 40, 30, dims=dims, types=["float", "float"])
    assert bool(find(recording(repeat(10, shape, times), use))) is reported
