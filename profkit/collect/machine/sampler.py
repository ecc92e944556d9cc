"""The machine's load while the program runs, read a few times a second on a separate thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.machine.page_faults import count_peak_bytes, count_switches
from profkit.collect.program.clocks import time
from profkit.run.directory import LoadSample

_INTERVAL_S = 0.2
_EARLY, _EARLY_SAMPLES = 0.25, 16
"""The first samples are this share of the interval apart, because a short program ends within two intervals. Each
sample takes 50 µs."""
_MOST_CPUS = 64
"""Reading one CPU's line takes 10 µs: 64 take three thousandths of the interval."""
_TIMES = 8
"""The fields from user to steal; user already includes the guests' time."""
_MAX_SAMPLES = 2000
_UNREADABLE = (psutil.Error, OSError)
"""The process is ending, or opens no file for a while. Nothing of this thread may reach the program."""
_SOON = 0.25
"""Share of the interval: over a shorter time the load is not accurate."""


def rss_bytes_of(process: psutil.Process) -> int:
    """The process's resident memory now; its most so far if the system's files cannot be read, as when the program has
    used up its descriptors."""
    try:
        return int(process.memory_info().rss)
    except _UNREADABLE:
        return count_peak_bytes()


class Sampler:
    """Samples from `start` to `stop`; `suspend` and `resume` surround a fork, when no thread may run.

    A share of 1 means all ``cpus`` CPUs. ``on_tick`` is called on the sampling thread after each sample, and as often
    as after the first ones, which are closer together, while it ``is_urgent``. If there are too many samples, every
    second one is dropped and the interval doubles.
    """

    def __init__(
        self,
        cpus: int,
        on_tick: Callable[[], None] = lambda: None,
        is_urgent: Callable[[], bool] = lambda: False,
        *,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self.samples: list[LoadSample] = []
        self._cpus, self._interval_s, self._on_tick, self._is_urgent = cpus, interval_s, on_tick, is_urgent
        self._process = psutil.Process()
        self._others = _Others(cpus, self._process)
        self._gpu: _Gpu | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._suspended = False

    def start(self) -> None:
        self._stopped.clear()
        with suppress(psutil.Error, OSError):
            self._process.cpu_percent()  # shares count from here; this thread holds Python's lock
        self._thread = threading.Thread(target=self._run, name="profkit-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def suspend(self) -> None:
        """Pause; `resume` continues if sampling was on."""
        running = self._thread is not None
        self.stop()
        self._suspended = running

    def resume(self) -> None:
        if self._suspended:
            self.start()

    def watch_gpu(self, uuid: str | None) -> None:
        """Also read that GPU's load, if it is known and the driver's library is installed."""
        self._gpu = None if uuid is None else _Gpu.find(uuid)

    def _run(self) -> None:
        """Take samples, with a last one at the end unless the one before was just taken."""
        taken, is_over, early, passed = time.monotonic(), False, _EARLY_SAMPLES, 0.0
        while not is_over:
            apart = _EARLY if early > 0 else 1.0
            share = min(apart, _EARLY) if self._is_urgent() else apart
            is_over = self._stopped.wait(self._interval_s * share)
            early, passed = early - 1, passed + share
            is_due = time.monotonic() - taken >= self._interval_s * _SOON if is_over else passed >= apart
            if is_due:
                with suppress(*_UNREADABLE):
                    self._take()
                taken, passed = time.monotonic(), 0.0
            if not is_over:
                with suppress(*_UNREADABLE):
                    self._on_tick()

    def _take(self) -> None:
        gpu_share, gpu_memory = self._gpu.read() if self._gpu is not None else (None, None)
        memory = self._process.memory_info()
        self.samples.append(
            LoadSample(
                time_ns=time.time_ns(),
                rss_bytes=int(memory.rss),
                shared_bytes=getattr(memory, "shared", None),
                cpu_share=min(self._process.cpu_percent() / 100 / self._cpus, 1.0),
                gpu_share=gpu_share,
                gpu_memory_bytes=gpu_memory,
                switches=count_switches(),
                others_cpus=self._others.read(),
            )
        )
        if len(self.samples) >= _MAX_SAMPLES:
            del self.samples[::2]
            self._interval_s *= 2


class _Others:
    """How busy other processes keep the CPUs that this process may use. Unknown under a quota, or if there are so many
    CPUs that reading takes long."""

    def __init__(self, cpus: int, process: psutil.Process) -> None:
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        is_known = len(allowed) == cpus and (os.cpu_count() or 0) <= _MOST_CPUS
        self._allowed, self._process = allowed if is_known else [], process
        self._before: tuple[float, float] | None = None

    def read(self) -> float | None:
        """The number of CPUs that others used on average since the last reading."""
        if not self._allowed:
            return None
        before, self._before = self._before, (time.monotonic(), self._busy_s())
        if before is None or self._before[0] <= before[0]:
            return None
        return max(0.0, (self._before[1] - before[1]) / (self._before[0] - before[0]))

    def _busy_s(self) -> float:
        own = self._process.cpu_times()
        every = psutil.cpu_times(percpu=True)
        idle = [getattr(every[cpu], name, 0.0) for cpu in self._allowed for name in ("idle", "iowait")]
        spent = [time_s for cpu in self._allowed for time_s in every[cpu][:_TIMES]]
        return float(sum(spent) - sum(idle) - own.user - own.system)


class _Gpu:
    """One GPU as the driver's management library (NVML) sees it."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    @classmethod
    def find(cls, uuid: str) -> _Gpu | None:
        try:
            import pynvml

            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        except Exception:  # no driver, no library, a part of a GPU: then only the host's load is sampled
            return None

    def read(self) -> tuple[float | None, int | None]:
        """The share of NVML's last sampling period in which a kernel ran, and the bytes that all processes use."""
        try:
            busy = self._library.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
            return busy, int(self._library.nvmlDeviceGetMemoryInfo(self._handle).used)
        except self._library.NVMLError:
            return None, None
