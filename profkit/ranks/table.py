"""What is kept of one rank's recording: a table small enough to travel, and to be held for each of thousands of ranks.

Times are the rank's own clock's, in nanoseconds. Rows are in order of time. `NONE` stands for what is not known.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from msgspec import Struct

from profkit.run import CallSite, RankIdentity
from profkit.trace.events import Bools, Int64s


class Cause(IntEnum):
    """What a rank spent time on between its waits for others."""

    INPUT = 0
    """It waited for its DataLoader."""
    COMPUTE = 1
    """Its device computed; on a CPU, its operators."""
    COPY = 2
    """Data went between host and device, and nothing was computed meanwhile."""
    MEMORY = 3
    """The allocator asked the driver for memory or gave it back."""
    HOST = 4
    """The host worked, in Python or launching, and its device stood idle."""
    GARBAGE = 5
    """Python's garbage collector ran."""
    UNKNOWN = 6
    """Nothing was recorded: it slept, or something outside of PyTorch worked."""
    UNRECORDED = 7
    """Of this rank only collectives and steps were recorded: it may have done anything."""
    CONTENTION = 8
    """It was ready to run, and other threads had the CPUs."""


class Group(Struct, frozen=True):
    """A process group: its name in the trace, its number of ranks, and which they are, None if the trace does not
    say. ``candidates`` are then those that it may be, none where even that is not known.

    Messages from one rank to another are those of a group of their own, whose ranks are the sender and the receiver;
    ``sends`` says which of them this rank is, None for other collectives.
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
    """The recorded steps: the program's own number of each, and when it began and ended."""

    number: Int64s
    start_ns: Int64s
    end_ns: Int64s


class Inputs(Struct, frozen=True):
    """How large the inputs are that each step works on, beside `Steps`; `NONE` where that is not known.

    ``operators`` is how many matrix products, convolutions and embeddings the forward pass calls, ``elements`` what
    they take in besides the weights, ``allocated_bytes`` what they allocate for their results.
    """

    operators: Int64s
    elements: Int64s
    allocated_bytes: Int64s


class Collectives(Struct, frozen=True):
    """One row for each collective, in the order in which the host asked for them.

    ``step`` is the step's number, ``group`` and ``site`` are indices of the table's, ``operation`` and ``dtype`` of its
    texts. ``sequence`` counts a group's collectives: the trace's own number, or counted from the recording's first.
    ``size_bytes`` is what this rank puts in. The host asked for it at ``issue_ns``; it ran from ``start_ns`` to
    ``end_ns``, waiting for the other ranks included, in ``lane`` (a stream, or a thread of the backend). From
    ``wait_start_ns`` to ``wait_end_ns`` this rank's own work stood still for it: an empty interval if it did not.
    ``on_device`` says that it is a kernel, ``on_compute`` that this ran in the stream that computes, and
    ``after_backward`` that the rank's last work before it was of a backward pass, so that a message brings gradients.
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


class Work(Struct, frozen=True):
    """What the rank itself did, cut wherever it waited for a collective and where a step ended.

    Several rows share one piece, from ``start_ns`` to ``end_ns``: each says how much of it went to one cause
    (`Cause`) at one line (``site``). They add up to the piece.
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
    """One rank. ``source`` names its recording as the user knows it; ``notes`` say what is wrong with it. Of one that
    ``is_cut_off`` what is lost may be from any time: threads and streams stand one after another in a file. Of one that
    ``has_gaps`` some events are lost. ``named_rank`` is the one in the recording's name, which may not be its own."""

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
        """Whether nothing but its collectives and steps was recorded, as of most ranks of a large launch."""
        return bool((self.work.cause == Cause.UNRECORDED).any())

    @property
    def sends(self) -> Bools:
        """Which of its collectives are messages that it sends."""
        sending = np.array([*(bool(group.sends) for group in self.groups), False], dtype=bool)
        found: Bools = sending[self.collectives.group]
        return found
