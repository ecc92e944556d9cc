"""Runs at once, by slices of time: while one computes, the others are stopped.

A machine is now faster, now slower, for seconds: its clock, and neighbours that share caches and memory. Two runs one
after the other meet different moods of it, and differ by a tenth or more although they compute the same. By slices of
a fiftieth of a second all meet the same. A stopped run notices nothing: its clock is read without its stops.

Each has a folder of its own, which lies at one path whenever its run goes on: they are renamed in between.
"""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from profkit.diagnosis.fixing.trees import copy_tree, snapshot
from profkit.diagnosis.fixing.turns import Run, Stage

_SLICE_S = 0.02
"""Twenty times what stopping takes and what filling the caches anew does, and far less than a machine's moods."""
_MOST_IDLE = 0.1
"""Of a run: who waits for files or a network does so while it is stopped, too, and would seem faster."""
_MOST_MEMORY = 0.5
"""Of the memory that is free: all hold theirs at once."""
_BYTES = 8
"""Of the number that tells a run how many nanoseconds it has been stopped."""
_MEMORY = Path("/proc/meminfo")


Version = tuple[Stage, Mapping[Path, bytes]]
"""What runs: the program, and the files of it that are changed. The stages of all have one folder."""


def can_take_slices(runs: Sequence[Run]) -> bool:
    """Whether runs like these, which were alone, can take turns: on no device, whose work does not stop; busy; and with
    memory for all."""
    peaks = [run.seen.peak_bytes for run in runs]
    has_room = min(peaks, default=0) > 0 and sum(peaks) <= _MOST_MEMORY * _free_bytes()
    return has_room and all(not run.seen.device_peak_bytes and _is_busy(run) for run in runs)


def _is_busy(run: Run) -> bool:
    idle_ns = run.seen.idle_ns
    return idle_ns is not None and idle_ns <= _MOST_IDLE * run.seen.run_ns


def _free_bytes() -> int:
    """The memory that a process could take; 0 where the system does not say, or knows no stopped processes."""
    with suppress(OSError, ValueError, StopIteration):
        lines = _MEMORY.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 0


def run_by_slices(versions: Sequence[Version], timeout_s: float) -> list[Run]:
    """Run each version once, by turns of a slice. Raises `TooLong`."""
    end = time.monotonic() + timeout_s
    ended = dict[int, Run]()
    with ExitStack() as stack:
        waiting = [stack.enter_context(_side(version, number)) for number, version in enumerate(versions)]
        while waiting:
            side = min(waiting, key=_Side.used_ns)  # who waited for a processor is behind, and meets other moods
            waiting.remove(side)
            side.go_on()
            left_s = end - time.monotonic()
            if side.ends_within(min(left_s, _SLICE_S) if waiting else left_s):
                ended[side.number] = side.seen()
            elif time.monotonic() >= end:
                raise versions[0][0].too_long(timeout_s)
            else:
                side.stop()
                waiting.append(side)
    return [ended[number] for number in range(len(versions))]


class _Side:
    """One of the runs. Its folder is at the copy's path from `go_on` to `stop` or its end."""

    def __init__(self, version: Version, number: int, place: Path, stops: mmap.mmap) -> None:
        self.number, self._place, self._stops = number, place, stops
        self._stage, self._files = version
        self._aside = place / "copy"
        self._process: subprocess.Popen[bytes] | None = None
        self._before: Mapping[Path, tuple[int, int]] = {}
        self._since_ns, self._stopped_ns = 0, 0
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()

    def go_on(self) -> None:
        """From where it stopped, or from the beginning."""
        if self._process is None:
            copy_tree(self._stage.tree, self._stage.copy, self._files)
            self._before = snapshot(self._stage.copy)
            begun = self._stage.turn(self._place, self._place / "stopped")
            self._process = self._stack.enter_context(begun)
            return
        self._aside.rename(self._stage.copy)
        self._stopped_ns += time.perf_counter_ns() - self._since_ns
        self._stops[:] = self._stopped_ns.to_bytes(_BYTES, "little")
        os.killpg(self._process.pid, signal.SIGCONT)

    def used_ns(self) -> int:
        """The processor's time that it has had; the main thread's. -1 before it begins."""
        return -1 if self._process is None else self._counts()[0]

    def _counts(self) -> tuple[int, int]:
        """Nanoseconds that the main thread computed, and that it waited for a processor."""
        assert self._process is not None
        with suppress(OSError, ValueError):  # it has just ended
            computed, waited, _ = Path(f"/proc/{self._process.pid}/schedstat").read_text(encoding="ascii").split()
            return int(computed), int(waited)
        return 0, 0

    def ends_within(self, seconds: float) -> bool:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0.0))
            return True
        return False

    def stop(self) -> None:
        """With all that it started, as soon as the system says that it stands. It may have ended just now, which
        `ends_within` tells next time.

        A process that waits for a processor takes the signal when it gets one. Until then it counts as waiting, and
        does not stand yet.
        """
        assert self._process is not None
        waited_ns, sent_ns = self._counts()[1], time.perf_counter_ns()
        os.killpg(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._since_ns = min(time.perf_counter_ns(), sent_ns + max(0, self._counts()[1] - waited_ns))
        self._stage.copy.rename(self._aside)

    def seen(self) -> Run:
        """What it left, now that it has ended. The path is free for another."""
        assert self._process is not None
        run = self._stage.seen(self._place, self._process.returncode, self._before)
        self._stage.copy.rename(self._aside)
        return replace(run, by_slices=True)


@contextmanager
def _side(version: Version, number: int) -> Iterator[_Side]:
    place = version[0].folder / f"side{number}"
    shutil.rmtree(place, ignore_errors=True)  # of the pair before
    place.mkdir()
    file = place / "stopped"
    file.write_bytes(bytes(_BYTES))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as stops:
        side = _Side(version, number, place, stops)
        try:
            yield side
        finally:
            side.close()
