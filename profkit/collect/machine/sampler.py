"""The load of the machine while the program runs, read a few times a second on a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.machine.page_faults import count_switches
from profkit.run import LoadSample

_INTERVAL_S = 0.2
_EARLY, _EARLY_SAMPLES = 0.25, 16
"""The first samples are this share of the interval apart, as a short program is over in two. Each takes 50 µs."""
_MOST_CPUS = 64
"""Reading the line of one takes 10 µs: 64 take three thousandths of the interval."""
_TIMES = 8
"""From user to steal: the time of guests is part of user's."""
_MAX_SAMPLES = 2000
_SOON = 0.2
"""Of the interval: over less time the load is not known well."""


def rss_bytes_of(process: psutil.Process) -> int:
    """What the process holds in memory now."""
    return int(process.memory_info().rss)


class Sampler:
    """Samples from `start` to `stop`; `suspend` and `resume` go around a fork, when no thread may run.

    A share of 1 stands for ``cpus`` CPUs. ``on_tick`` is called on the sampling thread after each sample. The first
    samples come sooner. If samples become too many, every second one is dropped and the interval doubles.
    """

    def __init__(
        self,
        cpus: int,
        interval_s: float = _INTERVAL_S,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.samples: list[LoadSample] = []
        self._cpus, self._interval_s, self._on_tick = cpus, interval_s, on_tick
        self._process = psutil.Process()
        self._others = _Others(cpus, self._process)
        self._gpu: _Gpu | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._suspended = False

    def start(self) -> None:
        self._stopped.clear()
        with suppress(psutil.Error, OSError):
            self._process.cpu_percent()  # shares count from here; called on this thread, which holds Python's lock
        self._thread = threading.Thread(target=self._run, name="profkit-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def suspend(self) -> None:
        """Stop for a moment; `resume` goes on if sampling was on."""
        running = self._thread is not None
        self.stop()
        self._suspended = running

    def resume(self) -> None:
        if self._suspended:
            self.start()

    def watch_gpu(self, uuid: str | None) -> None:
        """Read that GPU's load too, if it is known and the driver's library is there."""
        self._gpu = None if uuid is None else _Gpu.find(uuid)

    def _run(self) -> None:
        """A last sample is taken at the end, if that is not too soon."""
        taken, is_over, early = time.monotonic(), False, _EARLY_SAMPLES
        while not is_over:
            is_over = self._stopped.wait(self._interval_s * (_EARLY if early > 0 else 1))
            early -= 1
            if not is_over or time.monotonic() - taken >= self._interval_s * _SOON:
                try:
                    self._take()
                except (psutil.Error, OSError):  # the process is ending
                    return
                taken = time.monotonic()
            if not is_over:
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
    """How busy other processes keep the CPUs that the process may use; not told under a quota, or if reading so many
    CPUs takes long."""

    def __init__(self, cpus: int, process: psutil.Process) -> None:
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        is_told = len(allowed) == cpus and (os.cpu_count() or 0) <= _MOST_CPUS
        self._allowed, self._process = allowed if is_told else [], process
        self._before: tuple[float, float] | None = None

    def read(self) -> float | None:
        """CPUs since the last reading."""
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
        except Exception:  # no driver, no library, a part of a GPU: the load of the host is worth having alone
            return None

    def read(self) -> tuple[float | None, int | None]:
        """Share of the last sampling period in which a kernel ran, and bytes in use by all processes."""
        try:
            busy = self._library.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
            return busy, int(self._library.nvmlDeviceGetMemoryInfo(self._handle).used)
        except self._library.NVMLError:
            return None, None
