"""Tensors that grow by repeated concatenation, and concatenations that cannot be avoided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import MEDIUM_FROM, Need, Suspicion, missing_needs
from profkit.rules.growing_concatenation import growing_concatenation
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, memory, op, rows_named, runtime, step

Json = dict[str, Any]
PIECE = 1024
"""Elements of each new piece, which has 4 KiB."""


def find(facts) -> list[Suspicion]:
    return list(growing_concatenation.check(facts))


def cat(at: float, *elements: int, name: str = "aten::cat", duration: float = 8) -> Json:
    shapes = [[size] for size in elements]
    return op(name, at, duration, dims=[shapes, []], types=["TensorList", "Scalar"])


def growing(at: float, calls: int, piece: int = PIECE, name: str = "aten::cat") -> list[Json]:
    """`out = torch.cat([out, piece])`, called ``calls`` times, once every 10 µs for 8 µs."""
    return [cat(at + 10 * i, (i + 1) * piece, piece, name=name) for i in range(calls)]


def steps_of(part: Callable[[float], list[Json]], length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_each_call_keeps_only_the_time_of_its_new_piece():
    facts = facts_of(steps_of(lambda at: growing(at, 8)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::cat")
    assert found.evidence["copied_bytes_per_step"] == 4 * PIECE * sum(range(2, 10))
    assert found.evidence["longest_run"] == 8
    kept = sum(1 / total for total in range(2, 10))
    assert predict_saving(facts, found.edit).fraction == pytest.approx(8 * (8 - kept) / 100, abs=1e-3)


def test_giving_back_what_a_call_need_not_allocate_is_saved_too():
    """Each call allocates 128 KiB, which are given back in the 2 µs until the next one, and in 22 µs after the last."""

    def part(at: float) -> list[Json]:
        events = growing(at, 8)
        for i in range(8):
            address, begin = 64 + i, at + 10 * i
            events += [memory(begin + 1, 128 << 10, address), memory(begin + 8, -128 << 10, address)]
        return events

    facts = facts_of(steps_of(part))
    kept = sum(1 / total for total in range(2, 10))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((10 * (8 - kept) + 20 * 8 / 9) / 100, abs=1e-3)


@pytest.mark.parametrize(("calls", "worths"), [(8, [0.0]), (7, [MEDIUM_FROM]), (3, [MEDIUM_FROM]), (2, [])])
def test_of_three_to_seven_calls_in_a_row_the_gain_has_to_be_of_medium_severity(calls, worths):
    """Four calls in each of two places are two rows of four, not one of eight."""
    assert [found.worth for found in find(facts_of(steps_of(lambda at: growing(at, calls))))] == worths
    twice = find(facts_of(steps_of(lambda at: [*growing(at, 4), *growing(at + 45, 4)])))
    assert [(found.worth, found.evidence["longest_run"]) for found in twice] == [(MEDIUM_FROM, 4)]


def test_where_only_marked_steps_were_recorded_the_least_is_what_the_memory_needs(monkeypatch):
    """44 pieces are copied in 64 µs: 0.7 of their bytes a nanosecond, of 7 that the memory reads and writes."""
    rate = 20 * PIECE * 4 * 44 / 64_000
    monkeypatch.setattr("profkit.rules.growing_concatenation.memory_bytes_per_ns", lambda _: rate)
    plain = facts_of(steps_of(lambda at: growing(at, 8)))
    marked = facts_of(
        [*steps_of(lambda at: growing(at, 8), count=1), mark(0, 1, 98)], callsites=(CallSite("path.py", 3, "add"),)
    )
    ranges = [predict_saving(facts, found.edit) for facts in (plain, marked) for found in find(facts)]
    shares = [(saving.low / saving.fraction, saving.high / saving.fraction) for saving in ranges]
    assert shares[0] == pytest.approx((0.85, 1.15), abs=0.03)
    assert shares[1][0] == pytest.approx(0.1, abs=0.05)


def test_a_tensor_that_a_model_takes_between_a_few_calls_is_silent():
    """The features of a small DenseNet: three blocks, each of which takes all before it."""

    def part(at: float) -> list[Json]:
        used = [op("aten::conv2d", at + 10 * i + 8.5, 1, dims=[[(i + 2) * PIECE]], types=["float"]) for i in range(3)]
        return [*growing(at, 3), *used]

    assert find(facts_of(steps_of(part))) == []


def test_hstack_is_reported_like_cat():
    assert len(find(facts_of(steps_of(lambda at: growing(at, 8, name="aten::hstack"))))) == 1


def test_one_call_per_step_is_reported_when_the_result_grows_over_the_steps():
    facts = facts_of(steps_of(lambda at: [cat(at + 10, 30_000 + 10 * PIECE * int(at // 100), 10 * PIECE)]))
    (found,) = find(facts)
    assert found.evidence["longest_run"] == 4


def test_tensors_that_grow_in_turn_on_one_line_are_followed_separately():
    """A comprehension over the columns of a store: two columns have the same size, the third another."""

    def add(at: float) -> list[Json]:
        step_number = int(at // 100)
        columns = [(30_000, 2000), (500, 100), (30_000, 2000)]
        return [cat(at + 10 + 10 * i, size + piece * step_number, piece) for i, (size, piece) in enumerate(columns)]

    facts = facts_of(steps_of(add))
    (found,) = find(facts)
    assert found.rows.size == 12
    assert found.evidence["longest_run"] == 4


@pytest.mark.parametrize(
    ("dims", "reported"),
    [
        ([[30_000], [[64]]], True),
        ([[30_000], [[20_000]]], False),
        ([[50_000], [[30_000]]], False),
    ],
    ids=["few are picked", "most are picked", "it is what picks"],
)
def test_a_growing_store_is_reported_only_if_few_of_its_samples_are_picked(dims: list[Any], reported: bool):
    def add(at: float) -> list[Json]:
        size = 30_000 + 2000 * int(at // 100)
        taken = [
            [size if one == 30_000 else one for one in dims[0]],
            [[size if one == 30_000 else one for one in shape] for shape in dims[1]],
        ]
        index = op("aten::index", at + 30, 5, dims=taken, types=["float", "TensorList"])
        return [cat(at + 10, size - 2000, 2000), index]

    assert bool(find(facts_of(steps_of(add)))) is reported


def grown_since(elements: list[int]) -> list[Json]:
    """A located step with shapes, then steps without, in which only the allocator shows the size of the result."""
    events = [step(0, 0, 100), mark(0, 5, 20), cat(10, 20_480, 10_240), memory(11, 4 * 30_720, 1)]
    for i, size in enumerate(elements):
        at = 1000 + 100 * i
        events += [step(i + 2, at, 100), op("aten::cat", at + 10, 8), memory(at + 11, 4 * size, 10 + i)]
    return events


def test_without_shapes_growth_is_found_from_allocations():
    facts = facts_of(grown_since([51_200, 61_440, 71_680]), callsites=(CallSite("bank.py", 3, "add"),))
    (found,) = find(facts)
    assert found.evidence["longest_run"] == 3
    assert found.evidence["copied_bytes_per_step"] == 4 * 61_440
    assert set(facts.lines.site[found.rows]) == {0}
    kept = 10_240 * (1 / 51_200 + 1 / 61_440 + 1 / 71_680)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(8 * (3 - kept) / 300, abs=1e-3)


@pytest.mark.parametrize("elements", [[51_200, 61_440, 61_440], [51_200, 61_441, 71_680], [30_720] * 3])
def test_without_shapes_uneven_growth_is_silent(elements):
    assert find(facts_of(grown_since(elements))) == []


@pytest.mark.parametrize(("steps", "reported"), [(3, 1), (2, 0)])
def test_growth_over_fewer_than_three_steps_is_silent(steps, reported):
    """The result grows in the first ``steps`` of four steps, and the others repeat the last size."""

    def part(at: float) -> list[Json]:
        return [cat(at + 10, 30_000 + 10 * PIECE * min(int(at // 100), steps - 1), 10 * PIECE)]

    assert len(find(facts_of(steps_of(part)))) == reported


@pytest.mark.parametrize(("piece", "reported"), [(373, 1), (372, 0)])
def test_less_than_64_kibibytes_copied_is_silent(piece, reported):
    """Eight calls in one step copy 44 pieces of float32."""
    assert len(find(facts_of(steps_of(lambda at: growing(at, 8, piece), count=1)))) == reported


@pytest.mark.parametrize(("uses", "reported"), [(3, 1), (4, 0)])
def test_a_tensor_used_between_half_of_the_calls_is_silent(uses, reported):
    """Nine calls have eight gaps."""

    def part(at: float) -> list[Json]:
        used = [op("aten::mean", at + 10 * i + 8.5, 1, dims=[[(i + 2) * PIECE]], types=["float"]) for i in range(uses)]
        return [*growing(at, 9), *used]

    assert len(find(facts_of(steps_of(part)))) == reported


@pytest.mark.parametrize(
    "use",
    [
        pytest.param("aten::embedding", id="the ids of a language model"),
        pytest.param("aten::conv2d", id="the features of a DenseNet"),
    ],
)
def test_a_tensor_that_is_needed_whole_each_time_is_silent(use):
    def part(at: float) -> list[Json]:
        used = [
            op(use, at + 10 * i + 8.5, 1, dims=[[500, 64], [(i + 2) * PIECE]], types=["float", "float"])
            for i in range(8)
        ]
        return [*growing(at, 8), *used]

    assert find(facts_of(steps_of(part))) == []


def test_a_size_that_fits_into_no_column_is_one_that_nothing_takes() -> None:
    use = op("aten::relu", 35, 1, dims=[[1 << 40, 1 << 40]])
    found = find(facts_of(steps_of(lambda at: [*growing(at, 8), {**use, "ts": use["ts"] + at}])))
    assert len(found) == 1


def test_a_view_does_not_count_as_a_use():
    def part(at: float) -> list[Json]:
        seen = [op("aten::select", at + 10 * i + 8.5, 1, dims=[[(i + 2) * PIECE]], types=["float"]) for i in range(8)]
        return [*growing(at, 8), *seen]

    assert len(find(facts_of(steps_of(part)))) == 1


def test_concatenations_that_do_not_take_the_previous_result_are_silent():
    def part(at: float) -> list[Json]:
        return [cat(at + 10 * i, 100 * (i + 1) * PIECE, PIECE) for i in range(8)]

    assert find(facts_of(steps_of(part))) == []


def test_a_window_that_does_not_grow_is_silent():
    assert find(facts_of(steps_of(lambda at: [cat(at + 10 * i, 8 * PIECE, PIECE) for i in range(9)]))) == []


def test_copies_of_a_few_kilobytes_are_silent():
    assert find(facts_of(steps_of(lambda at: growing(at, 8, piece=16)))) == []


def test_a_loader_that_makes_a_batch_is_silent():
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert find(facts_of(steps_of(lambda at: [annotation(loading, at, 99), *growing(at + 1, 8)]))) == []


def test_each_line_gets_its_own_finding():
    sites = tuple(CallSite("gather.py", line, "gather") for line in (10, 20))
    both = [*growing(0, 8), *growing(100, 8)]
    first = [step(9, 0, 200), mark(0, 0, 99), mark(1, 100, 99), *both]
    later = steps_of(lambda at: [{**event, "ts": event["ts"] + at} for event in both], 200)
    facts = facts_of([*first, *({**event, "ts": event["ts"] + 200} for event in later)], callsites=sites)
    assert sorted(facts.callsites[facts.lines.site[found.rows[0]]].line for found in find(facts)) == [10, 20]


def test_on_a_device_most_of_the_copying_kernels_time_is_saved():
    def part(at: float) -> list[Json]:
        calls = [runtime("cudaLaunchKernel", at + 10 * i + 1, 2, correlation=int(at) + i + 1) for i in range(8)]
        copies = [kernel("CatArrayBatchedCopy", at + 10 + 30 * i, 30, correlation=int(at) + i + 1) for i in range(8)]
        return [*growing(at, 8), *calls, *copies, runtime("cudaStreamSynchronize", at + 90, 161)]

    facts = facts_of(steps_of(part, 252))
    kept = sum(1 / total for total in range(2, 10))
    saved = predict_saving(facts, find(facts)[0].edit).fraction
    assert saved == pytest.approx(min(30 * (8 - kept), 252 - 92) / 252, abs=0.05)


def test_without_shapes_it_cannot_look():
    facts = facts_of(steps_of(lambda at: [op("aten::cat", at, 20)]))
    assert Need.SHAPES in missing_needs(facts, growing_concatenation.needs)


ROW = [2, 4, 1, 64]
"""The keys of one token: two texts with four heads each."""


def cached(
    at: float,
    use: str = "aten::scaled_dot_product_attention",
    heads: int = 4,
    texts: int = 2,
    with_weight: bool = False,
    sequence: int | None = None,
) -> list[Json]:
    """Eight tokens after a text of 128 tokens: `cache = torch.cat([cache, row], 2)` takes 8 µs, and its use 1 µs. The
    cheapest operator, a view, takes half a microsecond."""
    events = []
    for i in range(8):
        whole, begin = [2, 4, 129 + i, 64], at + 10 * i
        other = [64, 64] if with_weight else [texts, heads, 1, 64]
        shared = [texts, heads, 129 + i, 64]
        joined = [[2, 4, 128 + i, 64], ROW]
        events += [
            op("aten::cat", begin, 8, dims=[joined, []], types=["TensorList", "Scalar"], sequence=sequence),
            op("aten::expand", begin + 8, 0.5, dims=[whole, []], types=["float", ""])
            if heads != 4
            else op("aten::transpose", begin + 8, 0.5, dims=[whole], types=["float"]),
            op(use, begin + 8.5, 1, dims=[other, shared], types=["float", "float"]),
        ]
    return events


@pytest.mark.parametrize("heads", [4, 32], ids=["each with its own", "eight share one"])
def test_for_a_cache_that_attention_reads_the_fix_is_preallocation(heads: int):
    facts = facts_of(steps_of(lambda at: cached(at, heads=heads)))
    (found,) = find(facts)
    assert found.fix.startswith("Allocate it once at its greatest length")
    assert found.kind is None
    assert found.evidence["longest_run"] == 8
    row = 2 * 4 * 64
    assert found.evidence["copied_bytes_per_step"] == 4 * row * sum(range(129, 137))
    assert predict_saving(facts, found.edit).fraction == pytest.approx(8 * (8 - 0.5) / 100, abs=1e-3)


def test_keys_and_values_stored_in_one_tensor_are_reported():
    (found,) = find(facts_of(steps_of(lambda at: cached(at, texts=1))))
    assert found.fix.startswith("Allocate it once at its greatest length")


@pytest.mark.parametrize("use", ["aten::conv2d", "aten::lstm", "aten::layer_norm"])
def test_a_tensor_that_must_be_contiguous_is_silent(use: str):
    assert find(facts_of(steps_of(lambda at: cached(at, use)))) == []


@pytest.mark.parametrize(("with_weight", "reported"), [(False, 1), (True, 0)])
def test_a_product_with_a_weight_matrix_is_silent_and_a_batched_product_is_reported(with_weight: bool, reported: int):
    """`sequence @ weight` takes all rows of the batch as one matrix and would copy part of a tensor. `query @ keys` is
    one product for each text."""
    facts = facts_of(steps_of(lambda at: cached(at, "aten::matmul", with_weight=with_weight)))
    assert len(find(facts)) == reported


def test_a_tensor_that_the_backward_pass_needs_unchanged_is_silent():
    """Writing in place would change tensors that autograd keeps."""

    def part(at: float) -> list[Json]:
        back = op("autograd::engine::evaluate_function: CatBackward0", at + 85, 5, sequence=7)
        return [*cached(at, sequence=7), back]

    assert find(facts_of(steps_of(part))) == []


@pytest.mark.parametrize(("length", "reported"), [(5_900, 1), (6_100, 0)])
def test_copies_of_a_cache_below_one_percent_of_the_step_are_silent(length: float, reported: int):
    """Eight calls save 7.5 µs each."""
    assert len(find(facts_of(steps_of(cached, length)))) == reported


def test_for_a_cache_in_a_library_the_fix_is_another_cache_implementation():
    sites = (CallSite("chat.py", 8, "answer", "text = model.generate(prompt)"),)
    first = [step(9, 0, 100), mark(0, 0, 99), *cached(0)]
    later = steps_of(lambda at: cached(at))
    facts = facts_of([*first, *({**event, "ts": event["ts"] + 100} for event in later)], callsites=sites)
    (found,) = find(facts)
    assert found.kind is Kind.OPPORTUNITY
    assert "cache_implementation" in found.fix


def test_on_a_device_writing_a_piece_takes_as_long_as_the_smallest_kernel():
    def part(at: float) -> list[Json]:
        work = []
        for i in range(8):
            number = int(at) + 2 * i + 1
            work += [
                runtime("cudaLaunchKernel", at + 10 * i + 1, 2, correlation=number),
                kernel("CatArrayBatchedCopy", at + 10 + 40 * i, 30, correlation=number),
                runtime("cudaLaunchKernel", at + 10 * i + 8.7, 0.5, correlation=number + 1),
                kernel("flash_fwd", at + 40 + 40 * i, 10, correlation=number + 1),
            ]
        return [*cached(at), *work, runtime("cudaStreamSynchronize", at + 90, 241)]

    facts = facts_of(steps_of(part, 332))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(8 * 20 / 332, abs=0.02)


def test_without_shapes_the_uses_come_from_the_located_step():
    """Each step adds one token. In later steps only the size of the concatenation is known."""
    one, rows = [2, 4, 128, 64], 2 * 4 * 64
    located = [
        step(0, 0, 100),
        mark(0, 5, 60),
        op("aten::cat", 10, 20, dims=[[one, ROW], []], types=["TensorList", "Scalar"]),
        memory(11, 4 * rows * 129, 1),
        op("aten::scaled_dot_product_attention", 40, 10, dims=[ROW, [2, 4, 129, 64]], types=["float", "float"]),
    ]
    later = [
        event
        for i in range(4)
        for at in (1000 + 100 * i,)
        for event in (
            step(i + 2, at, 100),
            op("aten::cat", at + 10, 20),
            memory(at + 11, 4 * rows * (130 + i), 10 + i),
            op("aten::scaled_dot_product_attention", at + 40, 10),
        )
    ]
    (found,) = find(facts_of([*located, *later], callsites=(CallSite("talk.py", 3, "add", "k = torch.cat([k, new])"),)))
    assert found.fix.startswith("Allocate it once at its greatest length")
