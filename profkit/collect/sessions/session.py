"""One session of ``torch.profiler``, and what prevents one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.autograd.profiler import profile as autograd_profile
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.program.guard import uncompiled
from profkit.collect.program.inductor import without_inductor
from profkit.collect.program.living import living
from profkit.collect.sessions.counting import STOP_MARK
from profkit.collect.sessions.detaching import detach, detachable
from profkit.collect.sessions.host_marks import open_mark
from profkit.collect.sessions.kineto import QuietAllocator, let_forked_children_exit, quiet_log
from profkit.core.marks import LINE_MARK, PAUSE_MARK, STEP_MARK


class ProfilerSession:
    """Records operators, ``memory`` and, with ``cuda``, kernels. The thread that starts it must also stop it.

    With ``shapes`` every operator's inputs are recorded too, and PyTorch keeps each tensor's header until the stop. The
    headers lie between the results, so the C library cannot reuse a result's place for the next one, and large results
    get fresh pages from the system: a step that only moves memory takes twenty times as long.

    Only with ``trees`` can the `events` be asked for. Without, the stop and the release take two thirds of the time,
    from PyTorch 2.13 on. With ``cuda`` they always can: that saving was not tried there.
    """

    def __init__(self, cuda: bool, shapes: bool = True, memory: bool = True, trees: bool = True) -> None:
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
        self._profiler = torch_profile(
            activities=activities,
            record_shapes=shapes,
            profile_memory=memory,
            with_stack=False,
            experimental_config=_settings(synchronisations=cuda, trees=trees or cuda),
            acc_events=True,
        )
        self.cuda = cuda
        self._allocator = QuietAllocator()
        self._step: record_function | None = None

    def start(self) -> None:
        let_forked_children_exit()
        self._allocator.begin()
        with quiet_log(), without_inductor(), detachable() if self.cuda else nullcontext():
            self._profiler.start()
        # Without `acc_events` PyTorch 2.10 to 2.12 warn that events of earlier cycles are dropped (PyTorch 180387).
        # Only the start may see it set, or the stop would spend 40 µs on each event.
        if self._profiler.profiler is not None:
            self._profiler.profiler.acc_events = False

    def begin_step(self, step: int) -> None:
        """Open a step's annotation, under the name that the TensorBoard plugin looks for."""
        self._step = record_function(f"{STEP_MARK}{step}")
        self._step.__enter__()  # type: ignore[no-untyped-call]  # torch gives no types here

    def end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def stop(self) -> None:
        """Raises `RuntimeError` if a second profiler destroyed the recording: exporting it would crash."""
        self.end_step()
        if not _is_profiling():
            raise RuntimeError("the recording is lost: another profiler took its place, or another thread ends it")
        with open_mark(STOP_MARK):  # operators that end after this were cut off
            pass
        with detachable() if self.cuda else nullcontext():
            self._profiler.stop()
            if self.cuda:
                detach()
        self._allocator.end()

    def events(self) -> list[Any]:
        """The events of a stopped recording as trees, one per outermost event; none if this PyTorch or this recording
        does not offer them."""
        results = getattr(self._profiler.profiler, "kineto_results", None)
        read_tree = getattr(results, "experimental_event_tree", None)
        return [] if read_tree is None else list(read_tree())

    def write(self, path: Path) -> None:
        """Write the trace as plain JSON."""
        self._profiler.export_chrome_trace(str(path))

    def let_go(self) -> None:
        """Release the recording, which takes much memory."""
        self._profiler.profiler = None


@contextmanager
def pause_marked() -> Iterator[None]:
    """Marks profkit's own work in the trace."""
    with record_function(PAUSE_MARK):
        yield


def mark_located() -> None:
    """Tell readers of a light recording, which has no line marks, that this step is recorded with shapes and is not a
    measured one: add an empty mark of a line."""
    with record_function(f"{LINE_MARK}0"):
        pass


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured, which any call of the profiler would break."""
    return cuda_is_used() and torch.cuda.is_current_stream_capturing()


def when_cuda_starts(announce: Callable[[], None]) -> None:
    """Call ``announce`` when the program initialises CUDA, if it is still alive then."""
    listen = getattr(torch.cuda, "_lazy_call", None)
    if listen is None or not torch.version.cuda or cuda_is_used():
        return
    this = weakref.ref(announce)

    def pass_on() -> None:
        alive = this()
        if alive is not None:
            alive()

    listen(pass_on)


def another_profiler_runs() -> bool:
    """Whether the program itself is profiling or about to: a second profiler would destroy the first."""
    if _is_profiling():
        return True
    return any(map(_is_prepared, living(autograd_profile)))


class ProfilerWatch:
    """Calls ``yield_to`` just before the program prepares a profiler of its own.

    Two profilers in one process lose their recordings or crash it (a null result is exported), so profkit's gives way.
    The replaced method is private, but every way to start a profiler calls it.
    """

    def __init__(self, yield_to: Callable[[], None]) -> None:
        self._yield_to = yield_to
        self._original: Callable[..., object] | None = None
        self._ours = 0

    def install(self) -> None:
        kind = autograd_profile
        original = self._original = getattr(kind, "_prepare_trace", None)
        if original is None:
            return

        @uncompiled
        def prepare(profiler: object) -> object:
            if not self._ours and self._original is not None:
                self._yield_to()
            return original(profiler)

        setattr(kind, "_prepare_trace", prepare)  # noqa: B010  # mypy refuses to assign to a method

    def remove(self) -> None:
        if self._original is not None:
            setattr(autograd_profile, "_prepare_trace", self._original)  # noqa: B010  # as above
            self._original = None

    def __enter__(self) -> None:
        """While entered, the profiler being started is profkit's."""
        self._ours += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours -= 1


def _settings(*, synchronisations: bool, trees: bool) -> Any:
    """Settings that make Kineto record CUDA's synchronisations too: which stream waits for which, and how long a thread
    waits for a stream. Without ``trees`` the stop makes no objects of Python. The class is private and warns from 2.14
    on. None if nothing is to be set, it fails, or warnings are errors."""
    wanted = {"enable_cuda_sync_events": True} if synchronisations else {}
    for settings in [wanted] if trees else [{**wanted, "trace_only": True}, wanted]:  # an older version has not both
        if settings:
            with suppress(AttributeError, TypeError, Warning):
                return torch._C._profiler._ExperimentalConfig(**settings)  # type: ignore[arg-type]  # all are flags
    return None


def _is_profiling() -> bool:
    """Whether a profiler is on for this thread."""
    return bool(torch.autograd._profiler_enabled())  # type: ignore[attr-defined]  # private: torch has no public equivalent


def _is_prepared(profiler: object) -> bool:
    return bool(getattr(profiler, "entered", False)) and getattr(profiler, "kineto_results", True) is None
