"""What it takes a process to be given a tensor by another one, on this machine: tried where a DataLoader was used.

A worker's tensors lie in shared memory. The main process asks for each file descriptor over a connection of its own, at
which both ends prove that they know a key (``multiprocessing.resource_sharer``, which PyTorch's strategy
``file_descriptor`` relies on); then every page is a fault as it is first read, and work again as the last of its users
lets it go.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from contextlib import closing, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from statistics import median

from profkit.run import HandingOver

_CONNECTIONS = 12
"""Some five milliseconds on a small machine."""
_PAGES = 1024


def measure_handing_over() -> HandingOver | None:
    """The price of one tensor and of one page in nanoseconds; None where the system has no such sharing."""
    if not hasattr(os, "memfd_create"):
        return None
    with suppress(OSError, EOFError, ValueError, AuthenticationError, RuntimeError):
        return HandingOver(tensor_ns=_connection_ns(), page_ns=_page_ns())
    return None


def _connection_ns() -> int:
    """The median of some connections to another thread, each with a key that is proven both ways."""
    key, took = os.urandom(16), []
    name = f"\0profkit-{os.getpid()}-{time.monotonic_ns()}"  # an abstract name: nothing is left in the file system
    with Listener(name, "AF_UNIX", backlog=1, authkey=key) as listener:
        answering = threading.Thread(target=_answer, args=(listener,), daemon=True)
        answering.start()
        for _ in range(_CONNECTIONS):
            begun = time.perf_counter_ns()
            with Client(name, "AF_UNIX", authkey=key) as connection:
                connection.recv_bytes()
            took.append(time.perf_counter_ns() - begun)
        answering.join(timeout=1.0)
    return round(median(took))


def _answer(listener: Listener) -> None:
    with suppress(OSError, EOFError, AuthenticationError):
        for _ in range(_CONNECTIONS):
            with listener.accept() as connection:
                connection.send_bytes(b"here")


def _page_ns() -> int:
    """First reads of pages that exist, less second reads, and then the freeing."""
    size = _PAGES * mmap.PAGESIZE
    with os.fdopen(os.memfd_create("profkit"), "wb", buffering=0) as file:
        file.write(bytes(size))
        with closing(mmap.mmap(file.fileno(), size)) as memory:
            begun = time.perf_counter_ns()
            memory[:: mmap.PAGESIZE]
            first = time.perf_counter_ns()
            memory[:: mmap.PAGESIZE]
            let_go = time.perf_counter_ns()
    freed = time.perf_counter_ns()
    return round(max(0, (first - begun) - (let_go - first) + (freed - let_go)) / _PAGES)
