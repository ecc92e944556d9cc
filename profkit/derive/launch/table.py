"""What is kept of one rank's recording: a table small enough to travel, and to be held for thousands of ranks.

Times are on the rank's own clock, in nanoseconds. Rows are in order of time. `NONE` stands for anything unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from msgspec import Struct

from profkit.run.directory import CallSite, RankIdentity
from profkit.trace.events import Bools, Int64s


class Cause(IntEnum):
    """What a rank spends time on between its waits for others."""

    INPUT = 0
    """It waits for its DataLoader."""
    COMPUTE = 1
    """Its device computes; on a CPU, its operators do."""
    COPY = 2
    """Data goes between host and device, and nothing is computed meanwhile."""
    MEMORY = 3
    """The allocator asks the driver for memory or gives it back."""
    HOST = 4
    """The host works, in Python or launching, and its device is idle."""
    GARBAGE = 5
    """Python's garbage collector runs."""
    UNKNOWN = 6
    """Nothing is recorded: it sleeps, or something outside PyTorch works."""
    UNRECORDED = 7
    """Only collectives and steps of this rank were recorded: it may do anything."""
    CONTENTION = 8
    """It is ready to run, but other threads have the CPUs."""


class Group(Struct, frozen=True):
    """A process group: its name in the trace, its number of ranks, and which ranks they are. If the trace does not say
    which, ``ranks`` is None and ``candidates`` are the possible sets of ranks, if known.

    Messages from one rank to another form a group of their own, whose ranks are the sender and the receiver. ``sends``
    says which of the two this rank is; it is None for other groups.
    """

    name: str
    size: int
    ranks: tuple[int, ...] | None = None
    description: str = ""
    sends: bool | None = None
    candidates: tuple[tuple[int, ...], ...] = ()

    @property
    def is_message(self) -> bool:
        return self.sends is not None


class Steps(Struct, frozen=True):
    """The recorded steps: the program's own number of each, its start and its end."""

    number: Int64s
    start_ns: Int64s
    end_ns: Int64s

    @property
    def duration_ns(self) -> Int64s:
        return self.end_ns - self.start_ns


class Inputs(Struct, frozen=True):
    """How large the inputs of each step are, in the order of `Steps`; `NONE` where unknown.

    ``operators`` counts the matrix products, convolutions and embeddings that the forward pass calls, ``elements`` what
    they take as input besides the weights, ``allocated_bytes`` what they allocate for their results.
    """

    operators: Int64s
    elements: Int64s
    allocated_bytes: Int64s


class Collectives(Struct, frozen=True):
    """One row for each collective, in the order in which the host asked for them.

    ``step`` is the step's number. ``group`` and ``site`` are indices of the table's groups and sites, ``operation`` and
    ``dtype`` of its texts. ``sequence`` is the number of the collective in its group, from the trace or else counted
    from the start of the recording. ``size_bytes`` is what this rank puts in. The host asks for it at ``issue_ns``. It
    runs from ``start_ns`` to ``end_ns``, including the wait for other ranks, in ``lane`` (a stream, or a thread of the
    backend). From ``wait_start_ns`` to ``wait_end_ns`` this rank's own work stands still for it; the interval is empty
    if it does not. ``on_device`` means that it is a kernel, ``on_compute`` that the kernel runs in the stream that
    computes. ``after_backward`` means that the rank's last work before it was of a backward pass, so that a message
    carries gradients.
    """

    step: Int64s
    group: Int64s
    sequence: Int64s
    operation: Int64s
    size_bytes: Int64s
    dtype: Int64s
    issue_ns: Int64s
    start_ns: Int64s
    end_ns: Int64s
    wait_start_ns: Int64s
    wait_end_ns: Int64s
    lane: Int64s
    on_compute: Bools
    site: Int64s
    after_backward: Bools
    on_device: Bools

    def __len__(self) -> int:
        return len(self.step)

    @property
    def waited(self) -> Bools:
        """For which of them the rank's own work stood still."""
        return self.wait_end_ns > self.wait_start_ns

    @property
    def arrived_ns(self) -> Int64s:
        """When the rank had the result: at the end of its wait if it waited, else when the collective ended."""
        return np.where(self.waited, np.minimum(self.wait_end_ns, self.end_ns), self.end_ns)


class Work(Struct, frozen=True):
    """What the rank itself did, in pieces between waits for collectives and ends of steps.

    A piece from ``start_ns`` to ``end_ns`` has a row for each `Cause` and line (``site``), whose ``time_ns`` add up to
    the piece.
    """

    step: Int64s
    start_ns: Int64s
    end_ns: Int64s
    cause: Int64s
    site: Int64s
    time_ns: Int64s

    def __len__(self) -> int:
        return len(self.step)


class RankTable(Struct, frozen=True):
    """One rank. ``source`` names its recording as the user knows it; ``notes`` say what is wrong with it. If its file
    ``is_cut_off``, events from any time may be lost, because a file lists one thread and stream after another. If it
    ``has_gaps``, some events are lost. ``named_rank`` is the rank in the recording's name, which may be wrong."""

    identity: RankIdentity
    source: str
    groups: tuple[Group, ...]
    texts: tuple[str, ...]
    sites: tuple[CallSite, ...]
    steps: Steps
    collectives: Collectives
    work: Work
    device: str | None = None
    notes: tuple[str, ...] = ()
    is_cut_off: bool = False
    has_gaps: bool = False
    named_rank: int | None = None
    inputs: Inputs | None = None

    @property
    def is_light(self) -> bool:
        """Whether only its collectives and steps were recorded, as for most ranks of a large launch."""
        return bool((self.work.cause == Cause.UNRECORDED).any())

    @property
    def sends(self) -> Bools:
        """Which of its collectives are messages that it sends."""
        return self._of_groups(group.sends is True for group in self.groups)

    @property
    def receives(self) -> Bools:
        """Which of its collectives are messages that it receives."""
        return self._of_groups(group.sends is False for group in self.groups)

    def _of_groups(self, chosen: Iterable[bool]) -> Bools:
        """Which of its collectives are of these groups."""
        found: Bools = np.array([*chosen, False], dtype=bool)[self.collectives.group]
        return found
