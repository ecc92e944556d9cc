"""What this machine does at most: measured twice, kept in a cache, and never believed if damaged or implausible."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from profkit.collect.machine import rates as module
from profkit.collect.machine.rates import cache_file, keep_rates, measure_rates, read_rates
from profkit.collect.recorder.profiler import profile
from profkit.core.processor import processor_name
from profkit.run.directory import Rates, load_run
from tests.collect.training import train

KEPT = Rates(processor_name(), 1e10, {"float64": 1e10, "float32": 2e10})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that were measured, each instantly."""
    measured: list[str] = []

    def measure(device: str) -> Rates:
        measured.append(device)
        return KEPT

    monkeypatch.setattr(module, "measure_rates", measure)
    return measured


def test_rates_are_measured_once_and_kept(cache, measurements):
    assert read_rates("cpu") is None
    assert [keep_rates("cpu"), keep_rates("cpu"), read_rates("cpu")] == [KEPT] * 3
    assert measurements == ["cpu", "cpu"]  # twice: the two must agree
    assert [path.name for path in (cache / "profkit").iterdir()] == [cache_file("cpu").name]


def test_by_default_the_cache_is_in_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_file("cpu").parent == tmp_path / ".cache" / "profkit"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"device": "another", "bandwidth": 1e10, "products": {}}',
        msgspec.json.encode(Rates(KEPT.device, -1.0, {})),
        msgspec.json.encode(Rates(KEPT.device, 1e10, {"float32": 0.0})),
        msgspec.json.encode(Rates(KEPT.device, 1e30, {})),
        b'{"device": 1, "bandwidth": "x", "products": []}',
        msgspec.json.encode(KEPT) + b" " * (1 << 17),
    ],
    ids=[
        "empty",
        "cut",
        "no text",
        "a list",
        "of another device",
        "negative",
        "zero",
        "implausible",
        "other types",
        "too large",
    ],
)
def test_a_damaged_file_is_replaced(content, measurements):
    cache_file("cpu").parent.mkdir()
    cache_file("cpu").write_bytes(content)
    assert read_rates("cpu") is None
    assert keep_rates("cpu") == KEPT
    assert measurements == ["cpu", "cpu"]
    assert read_rates("cpu") == KEPT


def test_a_cache_that_cannot_be_written_costs_nothing(cache, measurements):
    (cache / "profkit").write_text("a file where the directory should be")
    assert [keep_rates("cpu"), keep_rates("cpu")] == [KEPT] * 2
    assert measurements == ["cpu"] * 4
    assert read_rates("cpu") is None


def test_something_other_than_a_file_is_neither_read_nor_replaced(cache, measurements):
    cache_file("cpu").mkdir(parents=True)
    assert keep_rates("cpu") == KEPT
    assert list((cache / "profkit").iterdir()) == [cache_file("cpu")]
    cache_file("cpu").rmdir()
    os.mkfifo(cache_file("cpu"))
    assert read_rates("cpu") is None  # without waiting for a writer


def test_a_user_without_a_home_has_no_cache(monkeypatch, measurements):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(module.os.path, "expanduser", lambda path: path)
    assert keep_rates("cpu") == KEPT
    assert read_rates("cpu") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_without_permission_costs_nothing(cache, measurements):
    cache.chmod(0o500)
    assert keep_rates("cpu") == KEPT
    cache.chmod(0o700)
    assert measurements == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        (Rates(KEPT.device, 1.2e10, {"float64": 1e10, "float32": 1.7e10}), True),
        (Rates(KEPT.device, 1.21e10, {"float64": 1e10, "float32": 2e10}), False),
        (Rates(KEPT.device, 1e10, {"float64": 1e10, "float32": 1.6e10}), False),
        (Rates(KEPT.device, 1e10, {"float64": 1e10}), False),
    ],
    ids=["within a fifth", "another bandwidth", "another rate", "a type is missing"],
)
def test_rates_are_kept_only_if_two_measurements_agree(second, kept, monkeypatch):
    both = iter([KEPT, second])
    monkeypatch.setattr(module, "measure_rates", lambda _: next(both))
    best = keep_rates("cpu")
    assert best.bandwidth == max(KEPT.bandwidth, second.bandwidth)
    assert best.products["float64"] == 1e10
    assert read_rates("cpu") == (best if kept else None)


def test_another_number_of_threads_has_rates_of_its_own(monkeypatch):
    one = cache_file("cpu")
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 99)
    assert cache_file("cpu") != one


def test_this_machine_can_be_measured(monkeypatch):
    monkeypatch.setattr(module, "_SIDE", {"cpu": 128})
    monkeypatch.setattr(module, "_COPY_BYTES", {"cpu": 1 << 22})
    rates = measure_rates("cpu")
    assert rates.device == processor_name()
    assert rates.bandwidth > 1e8
    assert {"float64", "float32"} <= set(rates.products)
    assert min(rates.products.values()) > 1e6
    assert msgspec.json.decode(json.dumps(msgspec.to_builtins(rates)), type=Rates) == rates


class Event:
    """On this device any work between two events takes two milliseconds."""

    recorded = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        Event.recorded += 1
        self.number = Event.recorded

    def synchronize(self) -> None: ...

    def elapsed_time(self, later: Event) -> float:
        return 2.0 * (later.number - self.number)


@pytest.mark.parametrize(("capability", "has_tf32"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_is_measured_by_its_own_events(monkeypatch, capability, has_tf32):
    """The tensors are on the host here, but the device's clock counts."""
    monkeypatch.setattr(module, "_SIDE", {"cuda": 8})
    monkeypatch.setattr(module, "_COPY_BYTES", {"cuda": 4096})
    monkeypatch.setattr(module.torch.cuda, "Event", Event)
    monkeypatch.setattr(module.torch.cuda, "get_device_name", lambda: "NVIDIA T1000")
    monkeypatch.setattr(module.torch.cuda, "get_device_capability", lambda: capability)
    rates = measure_rates("cuda", place="cpu")
    assert rates.device == "NVIDIA T1000"
    assert rates.bandwidth == pytest.approx(2 * 4096 / 0.002)
    assert set(rates.products) == {"float64", "float32", "bfloat16", "float16", *(["tf32"] if has_tf32 else [])}
    assert list(rates.products.values()) == pytest.approx([2 * 8**3 / 0.002] * len(rates.products))


@pytest.mark.parametrize("before", [False, True])
def test_tf32_is_restored(before, monkeypatch):
    settings = SimpleNamespace(allow_tf32=before)
    monkeypatch.setattr(module.torch.backends.cuda, "matmul", settings)
    assert [module._with_tf32(lambda: settings.allow_tf32, allowed) for allowed in (True, False)] == [True, False]
    assert settings.allow_tf32 is before


def test_a_recording_carries_the_rates_of_the_gpu_that_the_program_used(tmp_path, monkeypatch):
    gpu = Rates("NVIDIA T1000", 1.6e11, {"float32": 2.5e12})
    monkeypatch.setattr("profkit.collect.recorder.archive.cuda_is_used", lambda: True)
    monkeypatch.setattr("profkit.collect.recorder.archive.read_rates", {"cuda": gpu}.get)
    with profile(tmp_path / "run", wait=1, warmup=1, active=1) as recording:
        train(6, recording)
    assert load_run(tmp_path / "run").rates == gpu
