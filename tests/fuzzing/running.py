"""Running a kind of input: in forked workers, each of a few hundred inputs, with limits of time and memory."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from profkit.core.errors import ProfkitError
from profkit.core.failures import STRICT, place_of
from profkit.core.forks import PROCESSES
from profkit.trace.cache import CACHE
from profkit.trace.limits import MEMORY_LIMIT
from tests.fuzzing.reports import check_error


class Odd(Enum):
    """What lies in a file's place."""

    PIPE = "a pipe that nobody writes to"
    LINK_OUT = "a link to a file elsewhere"
    LINK_TO_PIPE = "a link to a pipe"
    LOOP = "a link to itself"
    NOWHERE = "a link to nothing"
    FOLDER = "a folder"


Files = Mapping[str, bytes | Odd]
"""An input: what its files hold, or what lies in their place, by their names within a folder."""
MOST_SECONDS = 20.0
MOST_BYTES = 400 << 20
"""Of memory beyond what a worker begins with; `LIMIT` is what profkit itself is allowed."""
LIMIT = "300MB"
_ADDRESSES_BYTES = 2 << 30
_PER_WORKER = 400
_WARMING = 20
"""Inputs that the first process goes through too, so that each worker finds all modules imported."""
_HOPELESS_SECONDS = 3 * MOST_SECONDS
"""After that a worker is killed: its input does not even return to Python."""


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    ``count`` is the number of inputs of a full run. ``make`` makes one. ``read`` reads it from a folder, and derives
    what is cheap; it returns what goes on from there, None if nothing does. One of ``judged_each`` inputs that read is
    judged, and of one of ``rendered_each`` of all that are judged ``render`` checks all reports. ``found`` are the
    defects that this kind of input has shown so far.
    """

    name: str
    count: int
    make: Callable[[random.Random], Files]
    read: Callable[[Path], Callable[[], Any] | None]
    render: Callable[[Any], None]
    judged_each: int = 1
    rendered_each: int = 1
    found: tuple[str, ...] = ()

    def input(self, number: int, seed: int = 0) -> Files:
        return self.make(random.Random(f"{self.name}/{seed}/{number}"))


@dataclass(frozen=True)
class Failure:
    """What came out of an input that should not have."""

    number: int
    what: str
    place: str
    trace: str = ""


@dataclass
class Tally:
    """What became of the inputs."""

    read: int = 0
    refused: int = 0
    judged: int = 0
    rendered: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    slowest: int = -1
    grown_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.read + self.refused + len(self.failures)

    def add(self, other: Tally) -> None:
        for name in ("read", "refused", "judged", "rendered", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = other.slowest_seconds, other.slowest
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)
        self.failures += other.failures


class _TooLong(BaseException):
    """The input took longer than `MOST_SECONDS`."""


def run(kind: Kind, numbers: Sequence[int], seed: int = 0) -> Iterator[Tally]:
    """What became of the inputs, worker by worker. A worker that dies costs the input at which it died."""
    left = list(numbers)
    run_here(replace(kind, judged_each=1, rendered_each=1), left[:_WARMING], seed)
    while left:
        batch, left = left[:_PER_WORKER], left[_PER_WORKER:]
        tally, died = _in_a_worker(kind, batch, seed)
        if died is not None:
            left = [*batch[batch.index(died.number) + 1 :], *left]
            tally.failures.append(died)
        yield tally


def run_here(kind: Kind, numbers: Sequence[int], seed: int = 0) -> Tally:
    """The same in this process, for tests and debuggers."""
    return _work(kind, numbers, seed, memoryview(bytearray(8)))


def _in_a_worker(kind: Kind, numbers: Sequence[int], seed: int) -> tuple[Tally, Failure | None]:
    at = mmap.mmap(-1, 8)
    source, target = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(source)
        _be_worker(kind, numbers, seed, memoryview(at), target)
    os.close(target)
    said, begun, current = b"", time.monotonic(), -1
    while True:
        ready, _, _ = select.select([source], [], [], 1.0)
        if ready:
            block = os.read(source, 1 << 20)
            said += block
            if not block:
                break
        number = int.from_bytes(at[:8], "little")
        if number != current:
            begun, current = time.monotonic(), number
        elif time.monotonic() - begun > _HOPELESS_SECONDS:
            os.kill(worker, signal.SIGKILL)
    os.close(source)
    _, status = os.waitpid(worker, 0)
    number = int.from_bytes(at[:8], "little")
    at.close()
    if said and status == 0:
        return pickle.loads(said), None
    done = run_here_until(kind, numbers, number)
    return done, Failure(number, f"the worker ended with {os.waitstatus_to_exitcode(status)}", "the interpreter")


def run_here_until(kind: Kind, numbers: Sequence[int], number: int) -> Tally:
    """What is known of a worker's inputs before the one at which it died: that they were read or refused."""
    return Tally(read=list(numbers).index(number))


def _be_worker(kind: Kind, numbers: Sequence[int], seed: int, at: memoryview, target: int) -> NoReturn:
    status = 1
    try:
        held_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held_bytes + _ADDRESSES_BYTES,) * 2)
        gc.freeze()
        data = pickle.dumps(_work(kind, numbers, seed, at))
        while data:
            data = data[os.write(target, data) :]
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _work(kind: Kind, numbers: Sequence[int], seed: int, at: memoryview) -> Tally:
    tally = Tally()
    before = _most_held_bytes()
    earlier = signal.signal(signal.SIGALRM, _stop)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, _strictly(Path(folder)):
        try:
            for number in numbers:
                at[:8] = number.to_bytes(8, "little")
                _try_one(kind, number, seed, Path(folder, "input"), tally)
        finally:
            signal.signal(signal.SIGALRM, earlier)
    tally.grown_bytes = _most_held_bytes() - before
    return tally


def _try_one(kind: Kind, number: int, seed: int, folder: Path, tally: Tally) -> None:
    lay_out(kind.input(number, seed), folder)
    began = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        _examine(kind, number, folder, tally)
    except _TooLong as error:
        tally.failures.append(_failure(number, f"takes more than {MOST_SECONDS:g} s", error))
    except (Exception, RecursionError, MemoryError) as error:
        tally.failures.append(_failure(number, f"{type(error).__name__}: {error}", error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.perf_counter() - began
    tally.seconds += took
    if took > tally.slowest_seconds:
        tally.slowest_seconds, tally.slowest = took, number


def _examine(kind: Kind, number: int, folder: Path, tally: Tally) -> None:
    try:
        judge = kind.read(folder)
    except ProfkitError as error:
        check_error(error, folder)
        tally.refused += 1
        return
    if judge is not None and number % kind.judged_each == 0:
        try:
            judged = judge()
        except ProfkitError as error:
            check_error(error, folder)
            tally.refused += 1
            return
        if number // kind.judged_each % kind.rendered_each == 0:
            kind.render(judged)
            tally.rendered += 1
        tally.judged += 1
    tally.read += 1


def _failure(number: int, what: str, error: BaseException) -> Failure:
    return Failure(number, what[:300], place_of(error), "".join(traceback.format_exception(error))[-6000:])


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise _TooLong


def lay_out(files: Files, folder: Path) -> None:
    """Write an input's files into a folder, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        if "/" in name:
            path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Odd):
            _lay_odd(content, path)
        else:
            path.write_bytes(content)


def _lay_odd(odd: Odd, path: Path) -> None:
    if odd is Odd.PIPE:
        os.mkfifo(path)
    elif odd is Odd.FOLDER:
        path.mkdir()
    elif odd is Odd.LINK_TO_PIPE:
        pipe = path.with_name(f"{path.name}.pipe")
        os.mkfifo(pipe)
        path.symlink_to(pipe.name)
    else:
        path.symlink_to({Odd.LINK_OUT: "/etc/passwd", Odd.LOOP: path.name, Odd.NOWHERE: "/nowhere/at/all"}[odd])


def _most_held_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class _strictly:  # noqa: N801  # reads like a statement
    """profkit raises what fails inside it, in one process, without the user's cache, and warnings are errors."""

    def __init__(self, folder: Path) -> None:
        self._wanted = {STRICT: "1", PROCESSES: "1", CACHE: str(folder / "cache"), MEMORY_LIMIT: LIMIT}
        self._warnings = warnings.catch_warnings()
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._wanted}
        os.environ.update(self._wanted)
        self._warnings.__enter__()
        warnings.simplefilter("error")

    def __exit__(self, *_: object) -> None:
        self._warnings.__exit__(*_)
        for name, value in self._before.items():
            with suppress(KeyError):
                del os.environ[name]
            if value is not None:
                os.environ[name] = value
