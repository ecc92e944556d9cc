"""The accounts of real workers: what they contain, and that they have no effect on the program."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils, get_worker_info
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils.fetch import _BaseDatasetFetcher
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from profkit.collect.loaders import account as workers_account
from profkit.collect.loaders import worker_watch as workers
from profkit.collect.loaders.account import OVER, WorkerInit
from profkit.collect.loaders.worker_watch import WorkerWatch
from profkit.collect.program.guard import Guard
from profkit.run.directory import WORKERS_DIRECTORY
from profkit.source.user_code import UserFiles
from profkit.trace.worker_records import Workers, read_workers

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the workers of these tests are forked")
SLEEP_S = 0.01


class Slow(Dataset[Tensor]):
    """Each sample sleeps."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(SLEEP_S / 4)
        return torch.tensor([float(index)])


class Failing(Slow):
    def __getitem__(self, index: int) -> Tensor:
        raise LookupError(f"no sample {index}")


class Dying(Slow):
    def __getitem__(self, index: int) -> Tensor:
        if index >= 16:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.arange(12.0)


class Inner(Slow):
    """A dataset that uses a loader of its own."""

    def __getitem__(self, index: int) -> Tensor:
        return next(iter(DataLoader([super().__getitem__(index)], batch_size=1)))[0]


def collate_slowly(samples: list[Tensor]) -> Tensor:
    time.sleep(2 * SLEEP_S)
    return torch.stack(samples)


def refuse(worker: int) -> None:
    raise ValueError(f"worker {worker} will not begin")


@contextmanager
def watching(directory: Path) -> Iterator[list[BaseException]]:
    """Yields the errors inside profkit."""
    errors: list[BaseException] = []
    watch = WorkerWatch(directory, UserFiles(), Guard(errors.append))
    watch.install()
    try:
        yield errors
    finally:
        watch.remove()


def forked(dataset: Dataset[Any], workers: int = 1, **options: Any) -> DataLoader[Any]:
    options = {"batch_size": 4, "multiprocessing_context": "fork", **options}
    return DataLoader(dataset, num_workers=workers, **options)


def load(directory: Path, dataset: Dataset[Any], workers: int = 1, **options: Any) -> tuple[list[Any], Workers]:
    """The batches of a loader, of four samples each, and the accounts."""
    with watching(directory) as errors:
        got = list(forked(dataset, workers, **options))
    assert errors == []
    return got, read_workers(directory)


def test_fetching_and_collating_are_told_apart(tmp_path):
    got, found = load(tmp_path, Slow(), workers=2, collate_fn=collate_slowly)
    assert [batch.flatten().tolist() for batch in got[:2]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert sorted((record.loader, record.worker, record.workers) for record in found.records) == [(0, 0, 2), (0, 1, 2)]
    for record in found.records:
        last = record.sums[-1]
        assert last.batches == 4
        assert last.fetch_ns >= 4 * SLEEP_S * 1e9
        assert last.collate_ns >= 4 * 2 * SLEEP_S * 1e9
        assert last.fetch_ns + last.collate_ns + last.put_ns <= last.elapsed_ns
        assert last.busy_cpu_ns <= last.cpu_ns < last.fetch_ns + last.collate_ns  # it slept
        assert last.threads in (None, 1)
        assert record.sums[0].private_bytes
        assert record.sums[0].shared_bytes


def test_sending_a_batch_takes_some_time(tmp_path):
    _, found = load(tmp_path, Slow())
    assert 0 < found.records[0].sums[-1].send_ns


def test_the_program_gets_the_same_batches_as_without(tmp_path):
    torch.manual_seed(3)
    alone = list(forked(Slow(), workers=2, shuffle=True))
    torch.manual_seed(3)
    watched, _ = load(tmp_path, Slow(), workers=2, shuffle=True)
    assert torch.equal(torch.stack(alone), torch.stack(watched))


def test_the_loader_keeps_what_the_program_gave_it(tmp_path):
    loader = forked(Slow(), collate_fn=collate_slowly)
    with watching(tmp_path):
        next(iter(loader))
        assert loader.collate_fn is collate_slowly
        assert loader.worker_init_fn is None


@pytest.fixture
def _worker_deaths_are_noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch waits five seconds for a batch or the end of a worker before it checks that the worker is alive."""
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter._try_get_data, "__defaults__", (0.2,))


def failure_of(action: Callable[[], object]) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever it is
        action()
    found = caught.type, str(caught.value)
    del caught  # its traceback holds the loader's iterator, and so the workers
    gc.collect()
    return found


@pytest.mark.usefixtures("_worker_deaths_are_noticed_soon")
@pytest.mark.parametrize(("dataset", "options"), [(Failing(), {}), (Slow(), {"worker_init_fn": refuse})])
def test_exceptions_read_the_same_as_without(tmp_path, dataset, options):
    """The message contains the worker's whole traceback."""

    def iterate() -> None:
        list(forked(dataset, **options))

    alone = failure_of(iterate)
    with watching(tmp_path):
        assert failure_of(iterate) == alone
    assert "profkit/collect" not in alone[1]


@contextmanager
def deaths_found_by_asking() -> Iterator[None]:
    """PyTorch's handler of SIGCHLD raises wherever the main thread is, even where nothing can catch it: in the
    finaliser of an iterator that a traceback held."""
    signal_handling._set_SIGCHLD_handler()  # else the first loader of the process would set it again
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("_worker_deaths_are_noticed_soon")
def test_a_killed_worker_loses_only_its_last_batches(tmp_path):
    def iterate() -> None:
        list(forked(Dying()))

    with watching(tmp_path), deaths_found_by_asking():
        kind, _ = failure_of(iterate)
    assert issubclass(kind, (RuntimeError, OSError, EOFError))  # depends on what the worker was sending
    (record,) = read_workers(tmp_path).records
    assert 1 <= record.sums[-1].batches <= 4


def test_an_iterable_dataset_has_an_account_too(tmp_path):
    got, found = load(tmp_path, Stream())
    assert len(got) == 3
    assert found.records[0].sums[0].batches == 1


def test_a_loader_inside_the_dataset_does_not_disturb_the_account(tmp_path):
    _, found = load(tmp_path, Inner())
    last = found.records[0].sums[-1]
    assert last.batches <= 8
    assert last.fetch_ns >= last.batches * SLEEP_S * 1e9


def test_persistent_workers_continue_their_account(tmp_path):
    with watching(tmp_path):
        loader = forked(Slow(), persistent_workers=True)
        for _ in range(2):
            assert len(list(loader)) == 8
        del loader
    (record,) = read_workers(tmp_path).records
    assert record.sums[-1].batches > 8


def test_each_loader_has_a_number_and_a_description(tmp_path):
    datasets = Slow(), Inner()
    with watching(tmp_path):
        for dataset in (*datasets, datasets[0]):
            list(forked(dataset, batch_size=16))
    found = read_workers(tmp_path)
    assert [(loader.dataset, loader.workers) for loader in found.loaders] == [("Slow", 1), ("Inner", 1)]
    assert sorted(record.loader for record in found.records) == [0, 0, 1]


def test_the_number_of_workers_with_an_account_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_MAX_WORKERS", 1)
    got, found = load(tmp_path, Slow(), workers=2)
    assert len(got) == 8
    assert [record.worker for record in found.records] == [0]


def test_only_the_first_workers_read_their_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_MEMORY_READERS", 1)
    dataset = Slow()
    with watching(tmp_path):
        for _ in range(2):
            list(forked(dataset, batch_size=16))
    found = read_workers(tmp_path).records
    assert sorted(record.sums[0].private_bytes is None for record in found) == [False, True]


def test_a_dataset_that_cannot_be_described_is_still_loaded(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(workers, "describe_objects", fail)
    got, found = load(tmp_path, Slow())
    assert len(got) == 8
    assert found.loaders[0].objects == ()


def test_an_account_ends_when_the_recording_is_over(tmp_path):
    with watching(tmp_path):
        asked = iter(forked(Slow()))
        next(asked)
    assert (tmp_path / WORKERS_DIRECTORY / OVER).exists()
    assert len(list(asked)) == 7
    assert read_workers(tmp_path).records[0].sums[-1].batches < 8


def test_the_length_of_an_account_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(workers_account, "_MAX_LINES", 3)
    got, found = load(tmp_path, Slow())
    assert len(got) == 8
    assert len(found.records[0].sums) == 2


def test_an_error_in_the_account_does_not_reach_the_program(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(workers_account.Account, "_note", fail)
    got, found = load(tmp_path, Slow())
    assert len(got) == 8
    assert [record.sums for record in found.records] == [()]


def test_nothing_is_left_in_the_main_process(tmp_path):
    before = dict(vars(_MultiProcessingDataLoaderIter)), dict(vars(_BaseDatasetFetcher))
    load(tmp_path, Slow())
    assert (dict(vars(_MultiProcessingDataLoaderIter)), dict(vars(_BaseDatasetFetcher))) == before
    assert workers_account.Account.current is None


def test_earlier_workers_have_no_account(tmp_path):
    asked = iter(forked(Slow()))
    with watching(tmp_path):
        assert len(list(asked)) == 8
    assert not (tmp_path / WORKERS_DIRECTORY).exists()


def test_the_wrapped_worker_init_only_calls_the_programs_in_the_main_process(tmp_path):
    called: list[int] = []
    stand_in: Any = WorkerInit(called.append, str(tmp_path), 0)
    assert callable(stand_in)
    stand_in(4)
    WorkerInit(None, str(tmp_path), 0)(5)
    assert called == [4]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_spawned_worker_has_an_account_too(tmp_path):
    got, found = load(tmp_path, Slow(), multiprocessing_context="spawn")
    assert len(got) == 8
    (record,) = found.records
    assert record.sums[-1].batches >= 4
    assert json.loads((tmp_path / WORKERS_DIRECTORY / "loader-0.json").read_text())["dataset"] == "Slow"


def test_worker_info_is_the_same_inside_a_worker(tmp_path):
    class Asking(Slow):
        def __getitem__(self, index: int) -> Tensor:
            info = get_worker_info()
            assert info is not None
            return torch.tensor([info.id, info.num_workers])

    got, _ = load(tmp_path, Asking())
    assert got[0].tolist() == [[0, 1]] * 4
