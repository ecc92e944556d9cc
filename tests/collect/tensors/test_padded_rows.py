"""Which rows end in padding, and what only looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from profkit.collect.tensors.padded_inputs import Look, SeenTensor, Source, conclude
from profkit.collect.tensors.padded_rows import MASK, layouts_of, measure_rows
from profkit.run.directory import PaddedInput

LENGTHS = (5, 9, 12, 7, 10, 6)
SIZE = 32
NOWHERE = Source(None, ())
RANDOM = np.random.default_rng(0)


def seen(name: str, array: NDArray[Any]) -> SeenTensor:
    rows = {at: measure_rows(array, array.dtype.kind != "f", at) for at in layouts_of(array.shape)}
    return SeenTensor(name, array.shape, {at: one for at, one in rows.items() if one is not None})


def find(*batches: dict[str, NDArray[Any]]) -> list[PaddedInput]:
    return [one.found for one in conclude(looks(*batches))]


def looks(*batches: dict[str, NDArray[Any]]) -> list[Look]:
    return [(NOWHERE, [seen(name, array) for name, array in batch.items()]) for batch in batches]


def ids(lengths: tuple[int, ...] = LENGTHS, size: int = SIZE, padding: int = 0) -> NDArray[Any]:
    rows = np.full((len(lengths), size), padding)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = RANDOM.integers(5, 900, length)
    return rows


def mask(lengths: tuple[int, ...] = LENGTHS, size: int = SIZE) -> NDArray[Any]:
    return (np.arange(size) < np.array(lengths)[:, None]).astype(np.int64)


def features(lengths: tuple[int, ...] = LENGTHS, size: int = SIZE) -> NDArray[Any]:
    return RANDOM.normal(size=(len(lengths), size, 3)) * mask(lengths, size)[..., None]


def test_ids_are_measured_up_to_the_padding():
    (found,) = find({"ids": ids(padding=1)})
    assert (found.kind, found.batch_dim, found.dim, found.is_left) == ("ids", 0, 1, False)
    (batch,) = found.batches
    assert (batch.length, batch.longest, batch.rows) == (32, 12, 6)
    assert batch.mean == pytest.approx(np.mean(LENGTHS))


@pytest.mark.parametrize(
    ("array", "batch_dim", "dim", "is_left"),
    [
        pytest.param(ids()[:, ::-1], 0, 1, True, id="first"),
        pytest.param(ids().T, 1, 0, False, id="positions by rows"),
        pytest.param(features(), 0, 1, False, id="features"),
        pytest.param(features().transpose(1, 0, 2), 1, 0, False, id="positions by rows by features"),
        pytest.param(features().transpose(0, 2, 1), 0, 2, False, id="channels"),
    ],
)
def test_padding_is_found_wherever_it_is(array, batch_dim, dim, is_left):
    (found,) = find({"x": array})
    assert (found.batch_dim, found.dim, found.is_left, found.batches[0].longest) == (batch_dim, dim, is_left, 12)


def test_several_batches_of_one_input_are_one():
    (found,) = find({"x": ids()}, {"x": ids((20, 3, 11, 4))})
    assert [batch.longest for batch in found.batches] == [12, 20]


def test_a_single_row_is_told_by_several_batches():
    batches = [{"x": ids((length,))} for length in (5, 9, 14)]
    assert [one.kind for one in find(*batches)] == ["ids"]
    assert find(*batches[:2]) == []


def test_single_tokens_after_a_padded_prompt_do_not_hide_it():
    (found,) = find({"x": ids()}, {"x": ids((1,) * 6, size=1)})
    assert found.shape == (6, SIZE)


def test_the_padding_of_some_rows_is_seen_too():
    """Nothing is padded in the longest row."""
    (found,) = find({"x": ids((32, 9, 12, 20))})
    assert (found.batches[0].longest, found.batches[0].length) == (32, 32)


@pytest.mark.parametrize("inverted", [False, True])
def test_a_mask_counts_beside_data_of_its_shape(inverted):
    known = 1 - mask() if inverted else mask()
    found = {one.name: one for one in find({"x": features(), "mask": known})}
    assert found["mask"].kind == MASK
    assert found["mask"].batches[0].longest == 12
    assert find({"mask": known}) == []
    assert find({"image": RANDOM.normal(size=(6, 3, 8, 8)), "levels": known}) == []


def test_a_mask_of_data_that_is_not_padded_itself_hides_zeros():
    (found,) = find({"x": RANDOM.normal(size=(6, SIZE, 3)), "mask": mask()})
    assert (found.name, found.batches[0].longest) == ("mask", 12)


def test_a_mask_of_rows_that_are_padded_first_is_read_from_that_side():
    found = {one.name: one for one in find({"x": ids()[:, ::-1], "mask": mask()[:, ::-1]})}
    assert found["mask"].is_left
    assert found["mask"].batches[0].longest == 12


def centred() -> NDArray[Any]:
    images = np.zeros((8, 1, 28, 28))
    for image, size in zip(images, (10, 12, 14, 16, 18, 20, 11, 13), strict=True):
        first = (28 - size) // 2
        image[0, first : first + size, first : first + size] = RANDOM.normal(size=(size, size))
    return images


def sparse() -> NDArray[Any]:
    words = np.zeros((16, 200))
    for row in words:
        row[RANDOM.integers(0, 150, 8)] = 1.5 + RANDOM.random(8)
    return words


def flags() -> NDArray[Any]:
    """Three columns of flags, then ten of zeros."""
    table = RANDOM.normal(size=(64, 60))
    table[:, 50:] = 0
    table[:, 47:50] *= RANDOM.random((64, 3)) < 0.5
    return table


def table() -> NDArray[Any]:
    """Samples of categories, four columns of which are the same for all; some samples end in category 0."""
    categories = RANDOM.integers(1, 30, (64, 12))
    categories[:, :4] = 0
    for column, last in enumerate((1, 2, 3, 0, 1, 2, 0, 3), start=4):
        categories[64 - last :, column] = 0
    return categories


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(RANDOM.integers(0, 900, (8, 64)), id="full rows"),
        pytest.param(table(), id="columns of one category"),
        pytest.param(np.ones((8, 64), dtype=np.int64), id="a mask of ones"),
        pytest.param(np.full((8, 12), 7), id="prompts of one token"),
        pytest.param(ids((20,) * 8), id="rows of one length"),
        pytest.param(np.tril(np.ones((16, 16))), id="a causal mask"),
        pytest.param(np.triu(np.full((16, 16), -np.inf), 1), id="a causal mask to be added"),
        pytest.param(centred(), id="centred images"),
        pytest.param(np.eye(40)[RANDOM.integers(0, 30, (8, 20))], id="one-hot"),
        pytest.param(sparse(), id="sparse features"),
        pytest.param(flags(), id="flags before columns of zeros"),
        pytest.param(RANDOM.integers(0, 2, (8, 64)), id="bits"),
        pytest.param(np.sort(RANDOM.normal(size=(8, 64))), id="sorted numbers"),
        pytest.param(RANDOM.normal(size=(6, SIZE)) * mask() + np.arange(6)[:, None] * (1 - mask()), id="held values"),
        pytest.param(ids((3, 4, 5, 6), size=7), id="fewer than eight positions"),
        pytest.param(np.zeros((0, 16)), id="nothing"),
    ],
)
def test_what_only_looks_like_padding_is_silent(array):
    assert find({"x": array}) == []


def test_an_empty_row_among_padded_ones_counts():
    (found,) = find({"x": ids((*LENGTHS, 0))})
    assert found.batches[0].mean == pytest.approx(sum(LENGTHS) / 7)


def test_labels_that_hide_both_ends_say_nothing():
    labels = ids((9, 12, 14, 11), padding=-100)
    labels[:, :5] = -100
    assert find({"labels": labels}) == []


def test_a_batch_sorted_by_length_is_read_along_its_rows():
    (found,) = find({"x": ids((20, 16, 11, 9, 8, 6, 5, 3))})
    assert (found.batch_dim, found.dim) == (0, 1)


def test_of_a_large_tensor_some_rows_are_measured():
    (found,) = find({"x": ids(tuple(RANDOM.integers(100, 9_000, 400).tolist()), size=10_000)})
    assert 40 <= found.batches[0].rows < 400
