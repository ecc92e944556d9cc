"""The lines that make DataLoaders, found without any effect on a DataLoader."""

from __future__ import annotations

import pickle
import runpy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import CallSite, load_run
from profkit.source.user_code import UserFiles

HERE = __file__


class Derived(DataLoader[Any]):
    def __init__(self, data: Any, **options: Any) -> None:
        super().__init__(data, **options)
        self.name = "derived"


def made_data() -> TensorDataset:
    return TensorDataset(torch.arange(6.0))


@pytest.fixture
def sites() -> Iterator[LoaderSites]:
    watched = LoaderSites(UserFiles(), Guard(lambda error: pytest.fail(repr(error))))
    watched.install()
    yield watched
    watched.remove()
    assert "dataset" not in vars(DataLoader)


def source_of(site: CallSite | None) -> str:
    assert site is not None
    assert site.file == HERE
    return site.source


def test_the_line_that_makes_a_loader_is_found_by_its_dataset(sites):
    data = made_data()
    loader: DataLoader[Any] = DataLoader(data, batch_size=2)
    site = sites.find(data)
    assert source_of(site) == "loader: DataLoader[Any] = DataLoader(data, batch_size=2)"
    assert site is not None
    assert site.function.endswith("found_by_its_dataset")
    assert loader.dataset is data
    assert [len(batch[0]) for batch in loader] == [2, 2, 2]


def site_of_iterator(sites: LoaderSites, loader: DataLoader[Any]) -> CallSite | None:
    iterator: Any = iter(loader)
    return sites.find(iterator._dataset, iterator._index_sampler)


def test_two_loaders_of_one_dataset_are_told_apart_by_their_iterators(sites):
    data = made_data()
    learn: DataLoader[Any] = DataLoader(data, batch_size=2)
    evaluate: DataLoader[Any] = DataLoader(data, batch_size=3)
    assert source_of(site_of_iterator(sites, learn)).startswith("learn:")
    assert source_of(site_of_iterator(sites, evaluate)).startswith("evaluate:")
    assert source_of(site_of_iterator(sites, DataLoader(data, batch_size=None))).startswith("assert source_of(site_of_")


def test_a_dataset_of_two_loaders_alone_does_not_tell_the_line(sites):
    data = made_data()
    DataLoader(data)
    DataLoader(data, batch_size=3)
    assert sites.find(data) is None


def test_two_loaders_made_at_one_line_have_that_line(sites):
    data = made_data()
    for size in (2, 3):
        DataLoader(data, batch_size=size)
    assert source_of(sites.find(data)) == "DataLoader(data, batch_size=size)"


def test_a_subclass_of_the_loader_is_located_where_the_program_makes_it(sites):
    data = made_data()
    assert Derived(data).name == "derived"
    assert source_of(sites.find(data)) == 'assert Derived(data).name == "derived"'


def test_a_wrapped_constructor_is_seen_through(sites, monkeypatch):
    make = DataLoader.__init__

    def wrapper(loader: DataLoader[Any], *arguments: Any) -> None:
        make(loader, *arguments)

    monkeypatch.setattr(DataLoader, "__init__", wrapper)
    data = made_data()
    DataLoader(data)
    assert source_of(sites.find(data)) == "DataLoader(data)"


class Trainer:
    def __init__(self, data: Any) -> None:
        self.loader: DataLoader[Any] = DataLoader(data)


def test_a_loader_made_in_the_constructor_of_another_object_is_located_there(sites):
    data = made_data()
    Trainer(data)
    site = sites.find(data)
    assert source_of(site) == "self.loader: DataLoader[Any] = DataLoader(data)"
    assert site is not None
    assert site.function == "Trainer.__init__"


def test_a_list_can_be_a_dataset(sites):
    data = [1.0, 2.0]
    DataLoader(data)
    assert source_of(sites.find(data)) == "DataLoader(data)"


def test_a_loader_made_by_a_library_has_no_line(sites, tmp_path):
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("from torch.utils.data import DataLoader\ndef load(data): return DataLoader(data)\n")
    data = made_data()
    runpy.run_path(str(library))["load"](data)
    assert sites.find(data) is None


def test_a_reused_identity_of_a_dataset_finds_nothing(sites):
    numbers = set()
    for _ in range(20):
        data = made_data()
        if id(data) in numbers:
            assert sites.find(data) is None
            return
        numbers.add(id(data))
        DataLoader(data)
        del data
    pytest.skip("no identity was reused")


def test_a_loader_made_during_the_watch_is_complete_afterwards(sites):
    loader: DataLoader[Any] = DataLoader(made_data(), batch_size=2)
    sites.remove()
    assert vars(loader)["dataset"] is loader.dataset
    assert len(pickle.loads(pickle.dumps(loader)).dataset) == 6


def test_a_loader_made_before_the_watch_works_as_usual(sites):
    sites.remove()
    data = made_data()
    loader: DataLoader[Any] = DataLoader(data)
    sites.install()
    assert loader.dataset is data
    assert not hasattr(DataLoader.__new__(DataLoader), "dataset")
    assert sites.find(data) is None


def test_a_run_names_the_lines_of_the_loaders_that_were_used(tmp_path):
    with profile(tmp_path, wait=0, warmup=1, active=1):
        asked: DataLoader[Any] = DataLoader(made_data())
        DataLoader(made_data())
        for (x,) in asked:
            x * 2
    (use,) = load_run(tmp_path).loaders
    assert source_of(use.site) == "asked: DataLoader[Any] = DataLoader(made_data())"
