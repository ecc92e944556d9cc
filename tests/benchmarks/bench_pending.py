"""Whether looks that Python itself runs between two instructions of the program are free of the bias of a thread's.

    python -m tests.benchmarks.bench_pending [--seconds 25]

A loop has a part of pure Python, a short and a long call of C that let go of Python's lock. Clocks around them tell
their shares. They are set beside those of a thread that looks, and of pending calls (``Py_AddPendingCall``), for which
a timer of the system asks without the lock. That timer is only for this measurement: its thread is no thread of
Python's, a KeyboardInterrupt during such a call would be lost, and only glibc on Linux has it in this form.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import inspect
import os
import sys
import threading
import time
from collections import Counter

_EACH_NS = 10_000_000
_TURNS = (2_000, 20_000, 200_000)
_SHORT, _LONG = bytes(200_000), bytes(8_000_000)
_ON_A_THREAD = 2
"""``SIGEV_THREAD`` in ``bits/sigevent-consts.h``."""
Shares = dict[str, float]


class _Event(ctypes.Structure):
    """``struct sigevent`` of glibc, for ``SIGEV_THREAD``."""

    _fields_ = [
        *(("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int)),
        *(("function", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("rest", ctypes.c_char * 32)),
    ]


def count_up(times: int) -> int:
    total = 0
    for number in range(times):
        total += number * number % 7
    return total


def work(times: int, seconds: float) -> Shares:
    took, until = Counter[str](), time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        count_up(times)
        counted = time.perf_counter()
        hashlib.sha256(_SHORT).digest()  # short
        short = time.perf_counter()
        hashlib.sha256(_LONG).digest()  # long
        took.update(Python=counted - begun, short=short - counted, long=time.perf_counter() - short)
    return {name: value / sum(took.values()) for name, value in took.items()}


_TEXT, _FIRST = inspect.getsourcelines(work)
_LINES = {_FIRST + at: text.rpartition("# ")[2].strip() for at, text in enumerate(_TEXT) if "# " in text}


def name_of(frame: object) -> str:
    """``Python`` for all lines but those of the two calls."""
    code, line = frame.f_code, frame.f_lineno  # type: ignore[attr-defined]
    return _LINES.get(line, "Python") if code is work.__code__ else "Python"


def look(seen: Counter[str], stopping: threading.Event) -> None:
    main = threading.main_thread().ident or 0
    while not stopping.wait(_EACH_NS / 1e9):
        seen[name_of(sys._current_frames()[main])] += 1


def begin_timer(function: object) -> ctypes.c_void_p:
    """Asks Python to call the function, again and again."""
    libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
    ask = ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p)
    event = _Event(value=ctypes.cast(function, ctypes.c_void_p).value, notify=_ON_A_THREAD, function=ask.value)  # type: ignore[arg-type]
    each = (ctypes.c_long * 4)(0, _EACH_NS, 0, _EACH_NS)
    if libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError("no timer")
    libc.timer_settime(timer, 0, each, None)
    return timer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25)
    options = parser.parse_args()
    looks, pending, stopping = Counter[str](), Counter[str](), threading.Event()

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def note(_: int) -> int:
        pending[name_of(sys._getframe(1))] += 1
        return 0

    timer = begin_timer(note)
    threading.Thread(target=look, args=(looks, stopping), daemon=True).start()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; per cent: time, a thread's looks, pending calls\n")
    print("| Python's turns | Python | short | long |\n|---|---|---|---|")
    for times in _TURNS:
        looks.clear()
        pending.clear()
        clocks = work(times, options.seconds)
        cells = (
            ", ".join(f"{100 * share:.1f}" for share in (clocks[name], *(_share(of, name) for of in (looks, pending))))
            for name in ("Python", "short", "long")
        )
        print(f"| {times:,} | {' | '.join(cells)} |", flush=True)
    stopping.set()
    ctypes.CDLL(None).timer_delete(timer)


def _share(seen: Counter[str], name: str) -> float:
    return seen[name] / max(seen.total(), 1)


if __name__ == "__main__":
    main()
