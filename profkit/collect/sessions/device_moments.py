"""When a GPU reached the end of a step, found out without waiting for it.

The host runs ahead of the device: by its clock a step lasts only as long as its launches. So at each end of a step an
event is queued on the device behind the program's work, and read much later.
"""

from __future__ import annotations

from contextlib import suppress

import torch

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.machine.page_faults import count_crowded_ns, count_faults
from profkit.collect.program.clocks import time
from profkit.collect.sessions.session import is_capturing, pause_marked

_LONGEST_WAIT_S, _LOOK_S = 1.0, 0.01
"""How long to wait for running work when the recording ends: a device that hangs must not hold up the program."""


class DeviceMoment:
    """An event in the current stream, reached when everything launched there before is done."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no types here
        self._event.record()

    def ns_since(self, earlier: DeviceMoment) -> int:
        """The device's time since the earlier one; 0 if it is not reached yet, or they are of different devices."""
        with suppress(RuntimeError, ValueError):
            if self._event.query():  # type: ignore[no-untyped-call]
                took_ms: float = earlier._event.elapsed_time(self._event)
                return max(0, round(took_ms * 1e6))
        return 0

    def wait(self) -> None:
        """Wait until it is reached, or for as long as a program may be held up."""
        end = time.monotonic() + _LONGEST_WAIT_S
        with suppress(RuntimeError):
            while not self._event.query() and time.monotonic() < end:  # type: ignore[no-untyped-call]
                time.sleep(_LOOK_S)


def take_moment() -> DeviceMoment | None:
    """None if the program does not use CUDA or is capturing a graph, which would include the event."""
    with suppress(RuntimeError):  # the program itself shall hear of its kernels' errors
        if cuda_is_used() and not is_capturing():
            return DeviceMoment()
    return None


def read_clocks(is_recorded: bool) -> tuple[int, int, DeviceMoment | None, int | None]:
    """At the start of a step: the host's time, the page faults so far, the device's moment and, in a recording, how
    long this thread has waited for a CPU. A recording marks taking the moment as profkit's own work."""
    crowded_ns = count_crowded_ns() if is_recorded else None
    if is_recorded and cuda_is_used():
        with pause_marked():
            moment = take_moment()
    else:
        moment = take_moment()
    return time.perf_counter_ns(), count_faults(), moment, crowded_ns
