"""Which attributes of a dataset hold Python objects, and the lines that fill them."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from profkit.collect.loaders.dataset_copies import describe_objects

MINE: Mapping[str, bool] = defaultdict(lambda: True)


class Records(Dataset[Any]):
    def __init__(self, records: Any) -> None:
        self.records: Any = []
        self.names = ["a", "b"]
        self.records = records

    def __getitem__(self, index: int) -> Any:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)


class Appending(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.paths: list[str] = []
        for i in range(count):
            self.paths.append(f"{i}.png")


def found(dataset: object) -> list[tuple[str, int]]:
    return [(one["path"], one["objects"]) for one in describe_objects(dataset, MINE)]


def test_a_list_of_strings_is_counted_with_its_bytes():
    texts = [f"text {i:05d}" for i in range(2000)]
    (one,) = describe_objects(Records(texts), MINE)
    assert (one["path"], one["objects"]) == ("dataset.records", 2001)
    assert one["bytes"] == sys.getsizeof(texts) + 2000 * sys.getsizeof("text 00000")
    assert one["site"]["source"] == "self.records = records"
    assert one["site"]["function"] == "Records.__init__"
    assert one["site"]["file"] == __file__


def test_records_are_counted_with_what_they_hold():
    (one,) = describe_objects(Records([{"id": 10_000 + i, "box": (0.5 + i, 1.5 + i)} for i in range(1000)]), MINE)
    assert one["objects"] == 1 + 1000 * (1 + 2 + 1 + 1 + 2)  # the dict, two keys, a number, the tuple, two more


def test_the_line_that_appends_to_an_empty_list_is_named():
    (one,) = describe_objects(Appending(1500), MINE)
    assert one["site"]["source"] == 'self.paths.append(f"{i}.png")'


@pytest.mark.parametrize(("count", "reported"), [(998, 0), (999, 1)])
def test_fewer_than_a_thousand_objects_are_not_reported(count, reported):
    assert len(found(Records([str(i) for i in range(count)]))) == reported


def test_nested_datasets_are_searched():
    inner = Records([str(i) for i in range(2000)])
    assert found(Subset(inner, range(5)))[0] == ("dataset.dataset.records", 2001)
    assert found(ConcatDataset([inner, inner]))[0] == ("dataset.datasets.records", 2001)


@pytest.mark.parametrize(
    "records",
    [np.arange(9999), torch.arange(9999), [7] * 9999, "x" * 9999, range(9999), None],
    ids=["array", "tensor", "the same object", "text", "range", "nothing"],
)
def test_values_that_hold_few_objects_are_left_out(records):
    assert found(Records(records)) == []


def test_the_tensors_of_a_dataset_are_left_out():
    assert found(TensorDataset(torch.arange(5000))) == []


def test_many_small_arrays_count_as_objects_without_their_data():
    (one,) = describe_objects(Records([np.zeros(1000) for _ in range(1500)]), MINE)
    assert one["objects"] == 1501
    assert one["bytes"] < 1500 * 200


def test_an_attribute_set_by_a_library_has_no_line():
    (one,) = describe_objects(Records([str(i) for i in range(2000)]), defaultdict(bool))
    assert one["site"] is None


def test_no_code_of_the_program_runs():
    class Touchy(Records):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __len__(self) -> int:
            raise AssertionError

    made = object.__new__(Touchy)
    object.__setattr__(made, "__dict__", {"records": [str(i) for i in range(2000)]})
    assert found(made) == [("dataset.records", 2001)]


def test_a_reference_cycle_ends_the_search():
    first, second = Records([str(i) for i in range(2000)]), Records(None)
    first.other, second.other = second, first
    assert len(found(first)) == 1
