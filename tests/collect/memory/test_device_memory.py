"""What is recorded of a GPU's memory, with a stand-in for the allocator; its calls have not been run on a GPU."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from profkit.collect.memory import failures as failures_module
from profkit.collect.memory import watch
from profkit.collect.memory.allocator import CudaAllocator, OnFailure
from profkit.collect.memory.failures import FailureWatch
from profkit.collect.memory.history import LocatedHistory
from profkit.collect.memory.snapshots import save_snapshot
from profkit.collect.memory.watch import DeviceCounts
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import DEVICE_MEMORY_FILE, SNAPSHOT_FILE, DeviceMemorySample, load_device_memory, load_run
from tests.collect.training import make_training, train

PRIVATE = AttributeError("module 'torch._C' has no attribute '_cuda_memorySnapshot'")
SNAPSHOT = {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 512, "frames": []}]]}


class Allocator(CudaAllocator):
    """Two devices; the program uses the second. Each reading finds 512 bytes more."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.kept, self.broken = True, False, ""
        self.done: list[str] = []
        self.observers: list[OnFailure] = []
        self.on_program: Callable[[], None] = lambda: None
        self.read = 0

    @property
    def is_used(self) -> bool:
        return self.used

    def devices(self) -> range:
        return range(2)

    def total_bytes(self, device: int) -> int:
        return 80_000 + device

    def limit_bytes(self, device: int) -> int:
        return 40_000

    def counts(self, device: int) -> Mapping[str, Any]:
        self._try("counts")
        self.read += device
        now = 512 * self.read * device
        return {
            "allocated_bytes": {"all": {"current": now, "peak": now + 100}, "small_pool": {"current": 1}},
            "reserved_bytes": {"all": {"current": 2 * now, "peak": 2 * now}},
            "inactive_split_bytes": {"all": {"current": 7}},
            "num_alloc_retries": self.read,
            "num_ooms": 0,
        }

    def keeps_history(self) -> bool:
        self._try("keeps")
        return self.kept

    def begin_history(self, most_entries: int, on_program: Callable[[], None]) -> None:
        self.on_program = on_program
        self._try("begin")

    def stop_watching(self) -> None:
        self._try("let go")

    def end_history(self) -> None:
        self._try("end")

    def snapshot(self) -> object:
        self._try("snapshot")
        return SNAPSHOT

    def attach(self, on_failure: OnFailure) -> None:
        self._try("attach")
        self.observers.append(on_failure)

    def fail(self) -> None:
        """Tell the observer of a request that finds no room."""
        self.observers[0](1, 2_000, 80_001, 500)

    def _try(self, call: str) -> None:
        self.done.append(call)
        if call == self.broken:
            raise PRIVATE


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator()
    monkeypatch.setattr(watch, "CudaAllocator", lambda: made)
    monkeypatch.setattr(failures_module, "OBSERVER", failures_module._Observer())
    return made


def record(directory: Path) -> list[float]:
    with profile(directory, wait=1, warmup=1, active=2):
        return train(8)


def history_of(allocator: Allocator) -> list[str]:
    return [call for call in allocator.done if call not in ("counts", "attach")]


def test_the_allocator_is_read_in_each_recorded_step_and_at_the_end(tmp_path, allocator):
    record(tmp_path)
    samples = load_device_memory(tmp_path)
    assert [one.step for one in samples] == [0, 2, 3, -1]
    assert {one.device for one in samples} == {1}  # the other never held anything
    assert samples[0] == DeviceMemorySample(0, 1, 80_001, 512, 612, 1024, 1024, 7, retries=1, limit_bytes=40_000)
    assert load_run(tmp_path).notes == ()


def test_only_the_located_step_leaves_a_history(tmp_path, allocator):
    record(tmp_path)
    assert history_of(allocator) == ["keeps", "begin", "snapshot", "end"]
    assert pickle.loads((tmp_path / SNAPSHOT_FILE).read_bytes()) == SNAPSHOT
    assert allocator.done.count("counts") == 2 * (1 + 2 + 1)  # for both devices: each recorded step, and the end


def test_without_cuda_nothing_is_read_and_nothing_written(tmp_path, allocator):
    allocator.used = False
    record(tmp_path)
    assert allocator.done == []
    assert not any((tmp_path / file).exists() for file in (DEVICE_MEMORY_FILE, SNAPSHOT_FILE))


def test_a_history_that_the_program_records_is_left_alone(tmp_path, allocator):
    allocator.kept = True
    record(tmp_path)
    assert history_of(allocator) == ["keeps"]
    assert load_run(tmp_path).notes == (
        "the program records the history of its GPU memory itself: profkit took no snapshot",
    )


def test_a_history_that_the_program_begins_later_is_left_to_it(tmp_path, allocator):
    history = LocatedHistory(allocator, tmp_path)
    history.begin()
    allocator.on_program()
    history.end()
    assert history_of(allocator) == ["keeps", "begin", "let go"]
    assert not (tmp_path / SNAPSHOT_FILE).exists()


def test_an_interrupted_located_step_ends_its_history(tmp_path, allocator):
    with pytest.raises(ZeroDivisionError), profile(tmp_path, wait=0, warmup=1, active=1):
        train(1)
        _ = 1 / 0
    assert history_of(allocator) == ["keeps", "begin", "end"]
    assert not (tmp_path / SNAPSHOT_FILE).exists()


@pytest.mark.parametrize("broken", ["counts", "keeps", "begin", "snapshot", "end", "attach"])
def test_a_missing_private_call_costs_only_its_result(tmp_path, allocator, broken):
    allocator.broken = broken
    losses = record(tmp_path)
    run = load_run(tmp_path)
    assert len(losses) == 8
    assert run.trace is not None
    (note,) = run.notes
    assert str(PRIVATE) in note
    assert allocator.done.count("begin") == (broken != "keeps")
    assert ("end" in allocator.done) == (broken != "keeps")
    assert (tmp_path / SNAPSHOT_FILE).exists() == (broken in ("counts", "end", "attach"))


def test_a_snapshot_that_is_too_large_is_discarded(tmp_path):
    with pytest.raises(OSError, match="larger than 100 B"):
        save_snapshot(tmp_path, ["x" * 200], most_bytes=100)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_noted(tmp_path, allocator):
    history = LocatedHistory(allocator, tmp_path / "gone")
    history.begin()
    history.end()
    assert "the directory is gone" in history.notes[0]
    assert "end" in allocator.done


def test_readings_are_bounded_but_the_last_is_kept(allocator):
    counts = DeviceCounts(allocator)
    for step in range(2_500):
        counts.read(step)
    counts.read()
    assert len(counts.samples) == 2_001
    assert counts.samples[-1].step == -1


class TestFailures:
    """Requests that find no room."""

    def test_a_failure_that_ends_the_program_has_a_line_and_a_snapshot(self, tmp_path, allocator):
        with pytest.raises(torch.OutOfMemoryError), profile(tmp_path, wait=20):
            train(2)
            allocator.fail()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 KiB.")
        failed = load_run(tmp_path).out_of_memory
        assert failed is not None
        assert (failed.device, failed.asked_bytes, failed.total_bytes, failed.free_bytes) == (1, 2_000, 80_001, 500)
        assert failed.ended
        assert failed.site is not None
        assert failed.site.source == "self.observers[0](1, 2_000, 80_001, 500)"
        assert (tmp_path / SNAPSHOT_FILE).exists()

    def test_failures_that_the_program_survives_are_counted(self, tmp_path, allocator):
        with profile(tmp_path, wait=20):
            train(2)
            for _ in range(6):
                allocator.fail()
        failed = load_run(tmp_path).out_of_memory
        assert failed is not None
        assert (failed.ended, failed.count) == (False, 6)
        assert allocator.done.count("snapshot") == 4

    def test_an_error_in_profkit_does_not_hide_the_failure(self, tmp_path, allocator):
        allocator.broken = "snapshot"
        with profile(tmp_path, wait=20):
            train(2)
            allocator.fail()
        run = load_run(tmp_path)
        assert run.out_of_memory is not None
        assert str(PRIVATE) in run.notes[-1]

    def test_after_the_recording_nothing_is_watched(self, tmp_path, allocator):
        with profile(tmp_path, wait=20):
            train(2)
        allocator.fail()
        assert "snapshot" not in allocator.done

    def test_several_recordings_attach_one_observer(self, tmp_path, allocator):
        for name in ("first", "second"):
            with profile(tmp_path / name, wait=20):
                train(2)
                allocator.fail()
        assert len(allocator.observers) == 1
        assert load_run(tmp_path / "second").out_of_memory is not None

    def test_an_unwatched_failure_is_read_from_the_exception(self, tmp_path, allocator):
        """For example if it comes before the first CUDA call that profkit sees."""
        watching = FailureWatch(allocator, tmp_path, {__file__: True})
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity")
        except torch.OutOfMemoryError as error:
            failed = watching.conclude(error)
        assert failed is not None
        assert (failed.device, failed.asked_bytes, failed.ended) == (0, 3 << 29, True)

    def test_the_cause_of_another_exception_is_found(self, tmp_path, allocator):
        watching = FailureWatch(allocator, tmp_path, {__file__: True})
        try:
            try:
                bytearray(10**15)
            except MemoryError as error:
                raise ValueError("the batch is too large") from error
        except ValueError as error:
            failed = watching.conclude(error)
        assert failed is not None
        assert failed.site is not None
        assert (failed.device, failed.site.source) == (-1, "bytearray(10**15)")

    @pytest.mark.parametrize("error", [None, ValueError("x"), RuntimeError("mat1 and mat2 cannot be multiplied")])
    def test_other_exceptions_are_no_failures(self, tmp_path, allocator, error):
        assert FailureWatch(allocator, tmp_path, {}).conclude(error) is None


def test_results_are_the_same_with_the_readings(tmp_path, allocator):
    losses = record(tmp_path)
    step = make_training()
    assert losses == [step().item() for _ in range(8)]


def test_the_calls_reach_pytorch(monkeypatch):
    """By their names in PyTorch 2.13; no more can be tried without a GPU."""
    asked: list[tuple[Any, ...]] = []

    def record(*arguments: Any, **options: Any) -> None:
        asked.append((*arguments, *options.values()))

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history_impl", record)
    allocator, known = CudaAllocator(), []
    allocator.begin_history(50, lambda: known.append(1))
    assert asked == [("all", "all", "python", 50)]
    torch.cuda.memory._record_memory_history("all")
    assert known == [1]
    allocator.end_history()
    assert asked[1:] == [("all",), (None,)]
    torch.cuda.memory._record_memory_history(None)
    assert known == [1]
