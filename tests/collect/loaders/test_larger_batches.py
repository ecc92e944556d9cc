"""DataLoaders with larger batches, and the samples that come out of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from profkit.collect.loaders.larger_batches import LargerBatches

DATA = TensorDataset(torch.arange(20))
Install = Callable[[int], tuple[LargerBatches, list[int]]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Changes the classes until the end of the test. Returns what was changed, and where samples are counted."""
    for kind, name in (
        (DataLoader, "__init__"),
        (_BaseDataLoaderIter, "_next_index"),
        (_BaseDataLoaderIter, "__next__"),
    ):
        monkeypatch.setattr(kind, name, getattr(kind, name))

    def begin(times: int) -> tuple[LargerBatches, list[int]]:
        counted: list[int] = []
        batches = LargerBatches(times, counted.append)
        batches.install()
        return batches, counted

    return begin


def lengths(loader: DataLoader) -> list[int]:
    return [len(batch[0]) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_larger_and_their_samples_counted(install: Install, workers: int):
    batches, counted = install(2)
    assert lengths(DataLoader(DATA, 4, num_workers=workers)) == counted == [8, 8, 4]
    assert (batches.sizes, batches.fixed) == ([4], [])


def test_without_a_size_a_batch_has_one_sample(install: Install):
    batches, counted = install(4)
    assert lengths(DataLoader(DATA)) == counted == [4] * 5
    assert batches.sizes == [1]


def test_a_batch_sampler_gets_another_size(install: Install):
    batches, counted = install(2)
    sampler = BatchSampler(SequentialSampler(DATA), 5, drop_last=False)
    for _ in range(2):  # the same sampler in another loader
        assert lengths(DataLoader(DATA, batch_sampler=sampler)) == [10, 10]
    assert counted == [10] * 4
    assert batches.sizes == [5]


def test_a_loader_that_a_library_remakes_is_enlarged_once(install: Install):
    batches, _ = install(2)
    loader = DataLoader(DATA, batch_size=4)
    assert lengths(DataLoader(loader.dataset, batch_size=loader.batch_size)) == [8, 8, 4]
    assert lengths(DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)) == [8, 8, 4]
    assert batches.sizes == [4]


class Endless(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(16))


def test_a_stream_of_samples_has_larger_batches_too(install: Install):
    _, counted = install(2)
    assert [len(batch) for batch in DataLoader(Endless(), batch_size=4)] == counted == [8, 8]


class OwnBatches:
    def __iter__(self):
        return iter([[0, 1], [2]])


class Frozen(BatchSampler):
    def __init__(self) -> None:
        self.sampler, self.drop_last = SequentialSampler(DATA), False

    @property
    def batch_size(self) -> int:
        return 4


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch_size": None}, "a loader has batch_size=None, so its dataset makes the batches"),
        ({"batch_sampler": OwnBatches()}, "OwnBatches has no attribute batch_size to change"),
        ({"batch_sampler": Frozen()}, "the batch_size of Frozen cannot be set"),
    ],
)
def test_what_cannot_be_changed_is_said(install: Install, options, why: str):
    batches, _ = install(2)
    DataLoader(DATA, **options)
    assert (batches.sizes, batches.fixed) == ([], [why])


def test_a_wrong_loader_fails_as_it_would(install: Install):
    install(2)
    with pytest.raises(TypeError, match="unexpected keyword"):
        DataLoader(DATA, batch=4)
    with pytest.raises(ValueError, match="batch_size"):
        DataLoader(DATA, batch_size=-1)
