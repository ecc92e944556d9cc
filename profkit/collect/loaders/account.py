"""How a worker process of a DataLoader spends its time and memory, noted by the worker itself.

The attributes that PyTorch's worker loop reads show where it is: the fetcher's ``auto_collation`` when a batch begins,
its ``collate_fn`` when the samples are ready, and the queue's ``put`` when the batch is handed over. So profkit is not
on the stack while the program's own code runs, and exceptions and tracebacks do not change.

Now and then the worker appends a line of JSON to its own file, so a killed worker loses only its last lines. It stops
and removes everything when the recording is over, after `_MAX_LINES`, and on any error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from profkit.collect.machine.page_faults import count_faults
from profkit.collect.program.clocks import time
from profkit.collect.program.descriptors import Descriptor
from profkit.collect.program.frames import forget_locals, walk_up
from profkit.collect.program.guard import noticed

OVER = "over"
"""The main process makes this file when the recording is over."""
_MAX_LINES = 2000
_LINES_PER_INTERVAL = 200
_INTERVAL_NS = 5_000_000
"""Between two lines at first; doubles after every `_LINES_PER_INTERVAL`, so that the file lasts for 15 minutes."""
_MEMORY_SHARE = 50
"""Reading the memory walks the page tables, about 2.5 ms per 100 MB. It may take a fiftieth of the time."""
_MEMORY_FIRST_NS, _MEMORY_FIRST_SHARE = 100_000_000, 10
"""Until it has taken this long in all, it may take a tenth: even a short recording needs several readings."""
_SENDS_AHEAD = 1000


class WorkerInit:
    """Stands in for a loader's ``worker_init_fn``. Calling it reads ``__call__``, which begins the account and returns
    the original function, so the caller calls that one."""

    def __init__(
        self, original: Callable[[int], object] | None, directory: str, loader: int, reads_memory: bool = True
    ) -> None:
        self._original, self._directory, self._loader, self._reads_memory = original, directory, loader, reads_memory
        self._main, self._asked_ns = os.getpid(), time.perf_counter_ns()

    @property
    def __call__(self) -> Callable[[int], object]:
        if os.getpid() != self._main:  # a worker may be a thread
            with suppress(Exception):
                begin(self._directory, self._loader, self._reads_memory, self._asked_ns)
        return _do_nothing if self._original is None else self._original


def _do_nothing(worker: int) -> None:
    """The stand-in for a missing ``worker_init_fn``."""


def begin(directory: str, loader: int, reads_memory: bool, asked_ns: int) -> None:
    """Begin the account of this process, once; runs inside the worker's loop before it makes its fetcher. The main
    process asked for the worker at ``asked_ns``, on the same clock."""
    from torch.utils.data import get_worker_info
    from torch.utils.data._utils import worker

    loop = worker._worker_loop.__code__
    frame = next((caller for caller in walk_up(sys._getframe()) if caller.f_code is loop), None)
    info = get_worker_info()
    if frame is None or info is None or Account.current is not None:
        return
    queue = frame.f_locals.get("data_queue")
    forget_locals(frame)
    if queue is None or os.path.exists(os.path.join(directory, OVER)):
        return
    account = Account(directory, loader, info, reads_memory)
    who = {"loader": loader, "worker": int(info.id), "workers": int(info.num_workers)}
    account.write_line({**who, "asked_ns": asked_ns, "begun_ns": account.begun_ns})
    account.install(queue)


class Account:
    """Sums since the start, in nanoseconds. Everything but `_on_sent` runs on the worker's main thread."""

    current: Account | None = None

    def __init__(self, directory: str, loader: int, info: Any, reads_memory: bool) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        path = os.path.join(directory, f"{loader}-{os.getpid()}.jsonl")
        self._file: Descriptor | None = Descriptor(os.open(path, flags, 0o644))
        self._over = os.path.join(directory, OVER)
        self._dataset = info.dataset
        self._thread = threading.get_ident()
        self._schedule = _open_schedule()
        self._queue: Any = None
        self.begun_ns, self._begun_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        self.batches = self.fetch_ns = self.collate_ns = self.put_ns = self.send_ns = 0
        self.busy_cpu_ns = self.queued_ns = 0
        self._batch_ns = self._collate_at_ns = 0
        self._batch_cpu_ns = self._batch_queued_ns = 0
        self._put_at_ns: deque[int] = deque(maxlen=_SENDS_AHEAD)
        self._lines = self._next_line_ns = self._memory_ns = 0
        self._next_memory_ns = 0 if reads_memory else sys.maxsize

    def install(self, queue: Any) -> None:
        """Watch the fetchers and the queue of this process."""
        from torch.utils.data._utils.fetch import _BaseDatasetFetcher as Fetcher

        put, send = queue.put, queue._send_bytes

        def hand_over(*arguments: Any, **options: Any) -> None:
            began_ns = self._guarded(self._on_put) or 0
            put(*arguments, **options)
            if began_ns:
                self._guarded(lambda: self._on_handed_over(began_ns))

        def send_bytes(*arguments: Any, **options: Any) -> None:
            send(*arguments, **options)
            self._guarded(self._on_sent)

        Fetcher.auto_collation = noticed("auto_collation", lambda f: self._guarded(lambda: self._on_batch(f)))
        Fetcher.collate_fn = noticed("collate_fn", lambda f: self._guarded(lambda: self._on_samples(f)))
        queue.put, queue._send_bytes = hand_over, send_bytes
        self._queue = queue
        Account.current = self

    def stop(self) -> None:
        """Remove everything from this process."""
        from torch.utils.data._utils.fetch import _BaseDatasetFetcher as Fetcher

        for name in ("auto_collation", "collate_fn"):
            if isinstance(vars(Fetcher).get(name), property):
                delattr(Fetcher, name)
        vars(self._queue).pop("put", None)  # the feeder thread keeps its own reference to the send function
        self._dataset = None
        files = [self._file, self._schedule]
        self._file = self._schedule = None
        for file in files:
            if file is not None:
                file.close()

    def _guarded(self, action: Callable[[], int | None]) -> int | None:
        """Run ``action``; on an error stop the account, so that the program never sees it."""
        if self._file is None:
            return None
        try:
            return action()
        except Exception:
            with suppress(Exception):
                self.stop()
            return None

    def _on_batch(self, fetcher: Any) -> None:
        """The loop asks the fetcher for a batch. A loader inside the dataset has its own fetchers."""
        if self._is_own(fetcher) and not self._batch_ns:
            self._batch_queued_ns = self._read_queued_ns()
            self._batch_cpu_ns = time.thread_time_ns()
            self._batch_ns, self._collate_at_ns = time.perf_counter_ns(), 0

    def _on_samples(self, fetcher: Any) -> None:
        if self._batch_ns and self._is_own(fetcher):
            self._collate_at_ns = time.perf_counter_ns()

    def _is_own(self, fetcher: Any) -> bool:
        return vars(fetcher).get("dataset") is self._dataset and threading.get_ident() == self._thread

    def _on_put(self) -> int:
        """The batch is ready, or an exception in its place."""
        now_ns = time.perf_counter_ns()
        self._put_at_ns.append(now_ns)
        if not self._batch_ns:  # the loop's own message, not a batch
            return 0
        collate_ns = self._collate_at_ns or now_ns
        self.fetch_ns += collate_ns - self._batch_ns
        self.collate_ns += now_ns - collate_ns
        return now_ns

    def _on_handed_over(self, began_ns: int) -> None:
        now_ns = time.perf_counter_ns()
        self.put_ns += now_ns - began_ns
        self.busy_cpu_ns += time.thread_time_ns() - self._batch_cpu_ns
        self.queued_ns += self._read_queued_ns() - self._batch_queued_ns
        self._batch_ns = 0
        self.batches += 1
        if now_ns >= self._next_line_ns:
            self._note(now_ns)

    def _on_sent(self) -> None:
        """On the queue's own thread: the batch is pickled and written to the pipe."""
        self.send_ns += time.perf_counter_ns() - self._put_at_ns.popleft()

    def _note(self, now_ns: int) -> None:
        if self._lines >= _MAX_LINES or os.path.exists(self._over):
            self.stop()
            return
        sums = ("batches", "fetch_ns", "collate_ns", "put_ns", "send_ns", "busy_cpu_ns", "queued_ns")
        line: dict[str, Any] = {name: getattr(self, name) for name in sums}
        line["elapsed_ns"] = now_ns - self.begun_ns
        line["cpu_ns"] = time.process_time_ns() - self._begun_cpu_ns
        if now_ns >= self._next_memory_ns:
            before_ns = time.thread_time_ns()  # wall time may include waiting for a CPU
            line |= read_memory()
            line["faults"] = count_faults()
            line["threads"] = sys.modules["torch"].get_num_threads()
            took_ns = time.thread_time_ns() - before_ns
            self._memory_ns += took_ns
            self._begun_cpu_ns += took_ns  # not the program's work
            share = _MEMORY_SHARE if self._memory_ns > _MEMORY_FIRST_NS else _MEMORY_FIRST_SHARE
            self._next_memory_ns = now_ns + share * took_ns
        self.write_line(line)
        self._next_line_ns = now_ns + (_INTERVAL_NS << self._lines // _LINES_PER_INTERVAL)

    def write_line(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            os.write(self._file.number(), json.dumps(line).encode() + b"\n")
            self._lines += 1

    def _read_queued_ns(self) -> int:
        """How long this thread has waited for a CPU; 0 if the system does not report it."""
        return int(os.pread(self._schedule.number(), 96, 0).split()[1]) if self._schedule is not None else 0


def _open_schedule() -> Descriptor | None:
    """Open the kernel's record of this thread's time on, and waiting for, a CPU (``schedstat``), if there is one."""
    try:
        return Descriptor(os.open("/proc/thread-self/schedstat", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
    except OSError:
        return None


def read_memory(process: str = "self") -> dict[str, int]:
    """The memory that a process wrote to: what it holds alone, and what it shares with other forks; empty if the system
    does not report it."""
    wanted = {b"Private_Dirty:": "private_bytes", b"Shared_Dirty:": "shared_bytes"}
    try:
        with open(f"/proc/{process}/smaps_rollup", "rb") as file:
            fields = [line.split() for line in file]
    except OSError:
        return {}
    return {wanted[line[0]]: int(line[1]) << 10 for line in fields if line and line[0] in wanted}
