"""Copies into an order that the next operator does not need, and copies that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Severity, missing_needs
from profkit.rules.redundant_layout import redundant_layout
from profkit.savings.simulate import predict_saving
from tests.rules.roofs import on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import Json, facts_of, kernel, op, rows_named, step

HEADS, WORDS = [2, 8, 128, 64], [2, 128, 8, 64]
"""A tensor of (batch, heads, tokens, width) and the same before it was transposed."""
HEADS_STRIDES = "[65536, 64, 512, 1]"
IMAGE, IMAGE_STRIDES = [4, 16, 32, 32], "[16384, 1, 512, 16]"
"""Channels last: 4 x 32 x 32 x 16 in memory."""
ATTENTION = "aten::scaled_dot_product_attention"


def find(facts) -> list[Any]:
    return list(redundant_layout.check(facts))


def turn(at: float, sizes: list[int], strides: str, name: str = "transpose", source: list[int] | None = None) -> list:
    """A view of these sizes and strides."""
    inside = op("aten::as_strided", at + 1, 1, dims=[sizes, [], [], []], concrete=["", str(sizes), strides, ""])
    return [op(f"aten::{name}", at, 4, dims=[source or sizes, [], []]), inside]


def copy(at: float, sizes: list[int], length: float = 100, name: str = "contiguous", order: str = "0") -> list[Json]:
    moved = op("aten::copy_", at + 2, length - 4, dims=[sizes, sizes, []])
    return [op(f"aten::{name}", at, length, dims=[sizes, []], types=["float", ""], concrete=["", order]), moved]


def reader(name: str, *shapes: list[int], at: float = 300) -> list[Json]:
    return [op(f"aten::{name}", at, 100, dims=list(shapes), types=["float"] * len(shapes))]


def recording(*parts: list[Json], count: int = 4) -> Any:
    """Steps of 1000 µs on a CPU, each with these events."""
    events = [event for part in parts for event in part]
    moved = [{**event, "ts": event["ts"] + 1000 * i} for i in range(count) for event in events]
    return facts_of([*(step(i, 1000 * i, 1000) for i in range(count)), *moved])


def on_gpu(strides: str = HEADS_STRIDES, name: str = ATTENTION, between: list[Json] | None = None) -> Any:
    """A copy of 3 ms and attention of 6 ms on an H100."""
    shapes = [HEADS, []]
    copied = call("aten::contiguous", shapes, "c10::BFloat16", ("elementwise_kernel copy", 3000.0), at=110)
    inside = op("aten::copy_", 130, 20, dims=[HEADS, HEADS, []], external=1)
    attends = call(
        name, [HEADS] * 3, "c10::BFloat16", ("flash_fwd_kernel", 6000.0), at=320, number=2, on_device_at=3140
    )
    return on_device(turn(100, HEADS, strides, source=WORDS), copied, [inside], between or [], attends)


def test_copies_before_attention_are_left_out():
    facts = on_gpu()
    (found,) = find(facts)
    assert "1 copy a step puts a tensor in order before attention" in found.message
    assert found.evidence == {"copies_per_step": 1, "moved_bytes_per_step": 2 * 2 * 2 * 8 * 128 * 64}
    assert found.rows.tolist() == rows_named(facts.trace, "aten::contiguous")
    assert saved(facts, found) == pytest.approx(3000 / 9150, abs=0.03)


@pytest.mark.parametrize(
    ("strides", "why"),
    [
        ("[65536, 8192, 1, 128]", "the last dimension is out of order"),
        ("[8192, 0, 64, 1]", "one head is repeated for all"),
        ("", "the strides are not told"),
        ("[65536, 64, 512]", "a stride is missing"),
    ],
)
def test_attention_needs_the_last_dimension_in_order(strides, why):
    assert find(on_gpu(strides)) == [], why


def test_arithmetic_between_keeps_the_order_and_writing_into_the_copy_needs_it():
    scaled = op("aten::mul", 230, 20, dims=[HEADS, []])
    assert len(find(on_gpu(between=[scaled]))) == 1
    assert find(on_gpu(between=[{**scaled, "name": "aten::mul_"}])) == []


@pytest.mark.parametrize("name", ["aten::view", "aten::cumsum", "aten::transpose", "aten::slice"])
def test_a_reader_in_between_decides(name):
    assert find(on_gpu(between=[op(name, 230, 20, dims=[HEADS, []])])) == []


@pytest.mark.parametrize(("inside", "told"), [("aten::_scaled_dot_product_attention_math", 0), ("aten::empty", 1)])
def test_attention_by_plain_products_would_copy_itself(inside, told):
    assert len(find(on_gpu(between=[op(inside, 330, 20, dims=[HEADS])]))) == told


def test_on_a_cpu_attention_reads_a_tensor_in_order_faster():
    parts = turn(0, HEADS, HEADS_STRIDES), copy(10, HEADS), reader(ATTENTION.removeprefix("aten::"), HEADS, HEADS)
    assert find(recording(*parts)) == []


def test_queries_keys_and_values_in_one_tensor_are_followed_when_taken_apart():
    sizes, strides = [3, 2, 8, 128, 64], "[512, 196608, 64, 1536, 1]"
    copied = call("aten::contiguous", [sizes, []], "c10::BFloat16", ("elementwise_kernel copy", 300.0), at=110)
    inside = op("aten::copy_", 130, 20, dims=[sizes, sizes, []], external=1)
    attends = call(ATTENTION, [HEADS] * 3, "c10::BFloat16", ("flash", 600.0), at=320, number=2, on_device_at=440)
    apart = [op("aten::unbind", 230, 9, dims=[sizes, []])]
    viewed = turn(100, sizes, strides, "permute")
    assert len(find(on_device(viewed, copied, [inside], apart, attends))) == 1
    whole = [op("aten::flip", 230, 9, dims=[sizes, []])]
    assert find(on_device(viewed, copied, [inside], whole, attends)) == []


@pytest.mark.parametrize(
    ("sizes", "strides", "name", "shapes", "told"),
    [
        ([64, 32], "[1, 64]", "mm", ([8, 64], [64, 32]), 1),
        ([64, 32], "[96, 1]", "mm", ([8, 64], [64, 32]), 1),  # cut out of a wider one
        ([64, 32], "[1, 64]", "addmm", ([32], [8, 64], [64, 32]), 1),
        ([64, 32], "[2, 128]", "mm", ([8, 64], [64, 32]), 0),  # each second column
        ([64, 32], "[0, 1]", "mm", ([8, 64], [64, 32]), 0),
        ([64, 32], "[1, 64]", "linear", ([8, 64], [64, 32]), 0),
        ([4, 64, 32], "[2048, 1, 64]", "bmm", ([4, 8, 64], [4, 64, 32]), 1),
        ([4, 64, 32], "[64, 256, 1]", "bmm", ([4, 8, 64], [4, 64, 32]), 1),
        ([4, 64, 32], "[2048, 1, 64]", "matmul", ([4, 64, 32], [32, 5]), 0),  # folded into one product, by a copy
        ([2, 4, 64, 32], "[8192, 2048, 1, 64]", "matmul", ([2, 4, 8, 64], [2, 4, 64, 32]), 1),
        ([2, 4, 64, 32], "[8192, 64, 256, 1]", "matmul", ([2, 4, 8, 64], [2, 4, 64, 32]), 0),
    ],
)
def test_products_take_transposed_and_cut_out_matrices(sizes, strides, name, shapes, told):
    found = find(recording(turn(0, sizes, strides, "t"), copy(10, sizes), reader(name, *shapes)))
    assert len(found) == told
    assert all("before a product" in one.message for one in found)


@pytest.mark.parametrize(
    ("strides", "name", "weight", "told"),
    [
        (IMAGE_STRIDES, "conv2d", [8, 16, 3, 3], 1),
        (IMAGE_STRIDES, "conv2d", [16, 1, 3, 3], 0),  # a group for each channel
        ("[16384, 1024, 1, 32]", "conv2d", [8, 16, 3, 3], 0),  # height and width exchanged
        (IMAGE_STRIDES, "group_norm", [16], 0),
        (IMAGE_STRIDES, "layer_norm", [32], 0),
    ],
)
def test_convolutions_take_the_channels_last(strides, name, weight, told):
    found = find(recording(turn(0, IMAGE, strides, "permute"), copy(10, IMAGE), reader(name, IMAGE, weight)))
    assert len(found) == told
    assert all("channels_last" in one.fix for one in found)


def test_what_a_convolution_on_a_cpu_gains_without_the_copy_is_open():
    facts = recording(turn(0, IMAGE, IMAGE_STRIDES, "permute"), copy(10, IMAGE), reader("conv2d", IMAGE, [8, 16, 3, 3]))
    (found,) = find(facts)
    assert (found.severity, predict_saving(facts, found.edit).low) == (Severity.LOW, 0.0)
    (product,) = find(recording(turn(0, [64, 32], "[1, 64]", "t"), copy(10, [64, 32]), reader("mm", [8, 64], [64, 32])))
    assert product.severity is None


def there_and_back(strides: str, between: str = "gelu") -> Any:
    last = [4, 32, 32, 16]
    return recording(
        turn(0, IMAGE, IMAGE_STRIDES, "permute"),
        copy(10, IMAGE),
        reader(between, IMAGE, at=120),
        turn(230, last, strides, "permute", source=IMAGE),
        copy(240, last),
        reader("mean", last, at=350),
    )


def test_a_copy_and_the_copy_back_both_count():
    facts = there_and_back("[16384, 32, 1, 1024]")
    (found,) = find(facts)
    assert "2 copies a step put a tensor in order and back" in found.message
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.2, abs=0.005)


def test_another_order_is_no_way_back_and_a_norm_between_needs_it():
    assert find(there_and_back("[16384, 1, 32, 1024]")) == []
    assert find(there_and_back("[16384, 32, 1, 1024]", "layer_norm")) == []


def test_what_moves_nothing_and_what_keeps_the_order_is_no_copy():
    viewed, read = turn(0, IMAGE, IMAGE_STRIDES, "permute"), reader("conv2d", IMAGE, [8, 16, 3, 3])
    assert find(recording(viewed, copy(10, IMAGE)[:1], read)) == []
    assert find(recording(viewed, copy(10, IMAGE, name="clone", order=""), read)) == []
    assert len(find(recording(viewed, copy(10, IMAGE, name="clone"), read))) == 1


@pytest.mark.parametrize(("times", "told"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(times, told):
    parts = turn(0, [64, 32], "[1, 64]", "t"), copy(10, [64, 32]), reader("mm", [8, 64], [64, 32])
    events = [event for part in parts for event in part]
    moved = [{**event, "ts": event["ts"] + 1000 * i} for i in range(times) for event in events]
    others = [op("aten::add", 1000 * i + 500, 10, dims=[[4], [4]]) for i in range(4)]
    assert len(find(facts_of([*(step(i, 1000 * i, 1000) for i in range(4)), *others, *moved]))) == told


def test_without_operators_or_shapes_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), kernel("copy", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, redundant_layout.needs)
    facts = facts_of([step(0, 0, 100), op("aten::contiguous", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, redundant_layout.needs)


@pytest.mark.parametrize("strides", ["[--1, 64]", f"[{'9' * 5000}, 64]", "[1, 64, 3]", "[a, b]", "[]", "[¹, ²]"])
def test_strides_that_are_none_tell_nothing(strides):
    assert find(recording(turn(0, [64, 32], strides, "t"), copy(10, [64, 32]), reader("mm", [8, 64], [64, 32]))) == []


def test_the_last_view_of_the_same_sizes_counts():
    shapes = [8, 64], [64, 32]
    again = turn(0, [64, 32], "[1, 64]", "t"), turn(5, [64, 32], "[2, 128]", "slice")
    assert find(recording(*again, copy(10, [64, 32]), reader("mm", *shapes))) == []
    earlier, later = turn(0, [64, 32], "[2, 128]", "slice"), turn(5, [64, 32], "[1, 64]", "t")
    assert len(find(recording(earlier, later, copy(10, [64, 32]), reader("mm", *shapes)))) == 1
