"""What a run of a program spent its time on, from the start of its process to its end: the content of ``account.json``.

The program's main thread is looked at a few times a second. Each look counts for the time since the one before, so the
parts add up to the whole. Looks at the same lines are one `StackTime`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from profkit.run.directory import ACCOUNT_FILE, CallSite, load_file


class StackActivity(str, Enum):
    """What library code does below a line of the program. The value is its name in the file."""

    SAVING = "saving"
    LOADING = "loading"
    COMPILING = "compiling"
    DATA = "data"
    NETWORK = "network"
    LOGGING = "logging"
    IMPORTING = "importing"
    COPYING = "copying"
    CHILD = "child"
    ASKING = "asking"
    UPDATE = "update"
    BACKWARD = "backward"
    EVALUATING = "evaluating"
    COLLECTING = "collecting"
    FORWARD = "forward"
    PROFKIT = "profkit"
    OTHER = "other"


PHASE_OF: Mapping[StackActivity, str] = MappingProxyType(
    {
        StackActivity.SAVING: "checkpoints",
        StackActivity.LOADING: "reading checkpoints",
        StackActivity.COMPILING: "compiling",
        StackActivity.DATA: "waiting for data",
        StackActivity.NETWORK: "network",
        StackActivity.LOGGING: "logging",
        StackActivity.IMPORTING: "imports",
        StackActivity.COPYING: "copying files",
        StackActivity.CHILD: "other programs",
        StackActivity.ASKING: "waiting for input",
        StackActivity.EVALUATING: "evaluation",
        StackActivity.COLLECTING: "garbage collection",
        StackActivity.PROFKIT: "profkit itself",
    }
)
"""The phases of a run that one look at the stack tells. Updates, passes and all else need the loop around them."""
PROGRAM_PHASE = "the program's own code"
"""Where nothing tells more."""


class Place(Struct, frozen=True):
    """A line of the program on the stack. ``loop`` is the first line of the innermost loop around it in its function, 0
    if it is in none. ``evaluates`` says that the text shows an evaluation there: a function that puts a model into
    evaluation mode and calls no ``backward``, or a block or function without autograd whose names say so.
    ``without_gradients`` says that the line is in another block or function without autograd. ``trains`` says that the
    innermost loop or function with a call of ``backward`` is around the line. ``entries`` is how often a look found the
    program there that had been elsewhere at the look before."""

    site: CallSite
    loop: int = 0
    evaluates: bool = False
    trains: bool = False
    without_gradients: bool = False
    entries: int = 0


class StackTime(Struct, frozen=True):
    """How long the main thread was seen at some lines: ``places`` are their indices, the caller first.

    ``time_ns`` is time on the wall, ``cpu_ns`` the CPU time of the thread within it, -1 if unknown. ``first_ns`` and
    ``last_ns`` are the first and the last look, counted from the beginning of the watch. ``visits`` counts the
    stretches of looks that follow each other.
    """

    activity: str
    places: tuple[int, ...]
    time_ns: int
    cpu_ns: int
    first_ns: int
    last_ns: int
    looks: int
    visits: int


class DeviceSample(Struct, frozen=True):
    """One look at a device: nanoseconds since the beginning of the watch, the share of NVML's last sampling period in
    which a kernel ran, the bytes that all processes use, the clock of its multiprocessors in MHz, and NVML's reasons
    for that clock as a bit mask. -1 means unknown."""

    at_ns: int
    busy: float = -1.0
    used_bytes: int = -1
    clock_mhz: int = -1
    reasons: int = 0


class DeviceUse(Struct, frozen=True):
    """A GPU that NVML shows to the process, which is not said to use it. ``most_mhz`` is the highest clock of its
    multiprocessors, and its PCI Express link has at most that generation and so many lanes in this machine; 0 if
    unknown."""

    index: int
    name: str
    total_bytes: int = 0
    most_mhz: int = 0
    samples: tuple[DeviceSample, ...] = ()
    link_generation: int = 0
    link_lanes: int = 0


class DeviceChoice(Struct, frozen=True):
    """What the program could use and used. ``visible`` is the environment variable that hides devices, None if it is
    not set. ``build`` is the version of CUDA or ROCm that PyTorch was built for, empty if for none, None if PyTorch was
    not imported. ``was_initialised`` says that PyTorch has begun to use a device."""

    visible: str | None = None
    build: str | None = None
    was_initialised: bool = False


class StepSpan(Struct, frozen=True):
    """Steps of the training in a row: the last of them ended at ``until_ns`` since the beginning of the watch, all took
    ``took_ns``, and the shortest and the longest of them as long as the names say."""

    until_ns: int
    steps: int
    took_ns: int
    fastest_ns: int
    slowest_ns: int

    @property
    def typical_ns(self) -> float:
        """How long one of them takes, but for the longest: that may hold an evaluation or a checkpoint."""
        if self.steps < 2:
            return float(self.took_ns)
        return max(float(self.fastest_ns), (self.took_ns - self.slowest_ns) / (self.steps - 1))


class RunAccount(Struct, frozen=True):
    """The looks at one process. ``started_ns`` is when it was started, ``begun_ns`` when the watch began, ``until_ns``
    its last look, all since the epoch; the watch counts time that no change of the clock moves, so ``until_ns`` is the
    beginning plus that time. ``is_over`` is False in the file of a program that was killed. ``columns`` divide the
    watch into equal parts of ``column_ns``: for each, pairs of a stack's index and its nanoseconds in it. ``memory``
    are pairs of a time since the beginning and the bytes that the process held in memory then. ``devices`` are the
    GPUs; ``no_devices`` is why none could be looked at. ``steps`` are the training's, but
    for those that a profiler made longer, as far as their ends were seen. The looks follow the main thread to what it
    waits for: a thread that it joins, a coroutine of its loop."""

    started_ns: int = 0
    begun_ns: int = 0
    until_ns: int = 0
    places: tuple[Place, ...] = ()
    stacks: tuple[StackTime, ...] = ()
    column_ns: int = 0
    columns: tuple[tuple[tuple[int, int], ...], ...] = ()
    is_over: bool = False
    memory: tuple[tuple[int, int], ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    no_devices: str = ""
    choice: DeviceChoice = DeviceChoice()
    steps: tuple[StepSpan, ...] = ()


def load_account(directory: Path) -> RunAccount:
    """Read ``account.json``; an empty `RunAccount` if there is none."""
    return load_file(directory, ACCOUNT_FILE, RunAccount, RunAccount())
