"""One session of ``torch.profiler``, and what prevents one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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
from profkit.collect.sessions.detaching import detach, detachable
from profkit.collect.sessions.host_marks import open_mark
from profkit.collect.sessions.kineto import QuietAllocator, let_forked_children_exit, quiet_log
from profkit.core.marks import LINE_MARK, PAUSE_MARK, STEP_MARK

ACCUMULATES = "torch::autograd::AccumulateGrad"
"""The operator that stores a leaf's gradient, or adds to it."""
_OWN = "profkit."
_STOP = f"{PAUSE_MARK}.stop"


class ProfilerSession:
    """Records operators, ``memory`` and, with ``cuda``, kernels. The thread that starts it must also stop it.

    With ``shapes`` every operator's inputs are recorded too, and PyTorch keeps each tensor's header until the stop. The
    headers lie between the results, so the C library cannot reuse a result's place for the next one, and large results
    get fresh pages from the system: a step that only moves memory takes twenty times as long.
    """

    def __init__(self, cuda: bool, shapes: bool = True, memory: bool = True) -> None:
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
        self._profiler = torch_profile(
            activities=activities,
            record_shapes=shapes,
            profile_memory=memory,
            with_stack=False,
            experimental_config=_with_synchronisations() if cuda else None,
            acc_events=True,
        )
        self.cuda = cuda
        self._allocator = QuietAllocator()
        self._step: record_function | None = None
        self.gradients_added = 0

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
        with open_mark(_STOP):  # operators that end after this were cut off
            pass
        with detachable() if self.cuda else nullcontext():
            self._profiler.stop()
            if self.cuda:
                detach()
        self._allocator.end()

    def count_events(self) -> tuple[int, int]:
        """The number of the program's events in a stopped recording, and how many of their operators the stop cut off.
        From here on ``gradients_added`` says how often a gradient was stored or added to. Takes a third as long as the
        stop."""
        results = getattr(self._profiler.profiler, "kineto_results", None)
        if results is None:
            return 0, 0
        all_events = [(event.end_ns(), event.name(), event) for event in results.events()]
        self.gradients_added = sum(name == ACCUMULATES for _, name, _ in all_events)
        own = {end: name for end, name, _ in all_events if name.startswith(_OWN)}
        stopped = max((end for end, name in own.items() if name == _STOP), default=0)
        program = [(end, event) for end, name, event in all_events if not name.startswith(_OWN)]
        # Kineto gives an event that never ended the exact end of the mark around it, or of the recording.
        return len(program), sum(_is_operator(event) for end, event in program if end > stopped or end in own)

    def events(self) -> list[Any]:
        """The events of a stopped recording as trees, one per outermost event; none if this PyTorch does not offer
        them."""
        results = getattr(self._profiler.profiler, "kineto_results", None)
        read_tree = getattr(results, "experimental_event_tree", None)
        return [] if read_tree is None else list(read_tree())

    def write(self, path: Path) -> None:
        """Write the trace as plain JSON, and release the recording."""
        self._profiler.export_chrome_trace(str(path))
        self.let_go()

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


def _with_synchronisations() -> Any:
    """Settings that make Kineto record CUDA's synchronisations too: which stream waits for which, and how long a thread
    waits for a stream. The class is private and warns from 2.14 on. Returns None if it fails or warnings are errors."""
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError, Warning):
        return None


def _is_profiling() -> bool:
    """Whether a profiler is on for this thread."""
    return bool(torch.autograd._profiler_enabled())  # type: ignore[attr-defined]  # private: torch has no public equivalent


def _is_operator(event: Any) -> bool:
    """Whether it is an operator, not a range, runtime call or kernel. Before torch 2.8 runtime calls count too."""
    if hasattr(event, "activity_type"):
        return bool(event.activity_type() == "cpu_op")
    return not event.is_user_annotation() and bool(event.device_type().name == "CPU")


def _is_prepared(profiler: object) -> bool:
    return bool(getattr(profiler, "entered", False)) and getattr(profiler, "kineto_results", True) is None
