"""What is recorded and how much of it, by the user's choice or by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.run.directory import Interlude

EXPLICIT = "step()"
SIGNALS = {
    "step": EXPLICIT,
    "optimizer": "optimizer",
    "dataloader": "dataloader",
    "backward": "backward",
    "forward": "forward",
    "epoch": "epoch",
}
"""What may end a step: the users' name for it, and the name in ``run.json``. ``epoch`` ends steps only if chosen."""
ROUND = "round"
"""A round of a loop ends a step where nothing else does; nobody chooses that."""
COUNTED_AS = {
    EXPLICIT: "calls of step()",
    "optimizer": "the optimizer's steps",
    "dataloader": "the DataLoader's batches",
    "backward": "backward passes",
    "forward": "calls of the model",
    "epoch": "passes over the DataLoader",
    ROUND: "rounds of a loop",
}
"""What the steps are, by the signal that ends them."""
BEST_SIGNAL = "auto"
"""The users' name for "the best signal that comes"."""

WAIT_STEPS, WARMUP_STEPS, ACTIVE_STEPS = 3, 1, 4
"""Steps timed without a profiler, steps recorded to learn which line runs what, and steps measured."""
AFTER_STEPS = 30
"""Steps timed after the recording."""
LIMIT_S = 30.0
"""The longest recording, in seconds."""
_INTERLUDE = 2
"""The number of the window between the steps, as that of the first one a user requests."""
_FEW_CALLS = 3
"""Calls of the model that are measured between the steps, and timed behind these: an evaluation may have few."""
_INTERLUDE_S = 3.0
"""The longest recording between the steps: it shares the allowance with that of the steps."""
FULL_RANKS = 8
"""How many ranks of a launch record everything: as many as a host usually has GPUs, so that a launch on one host loses
nothing. A report reads a trace of up to 50 MB for each."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is recorded: the command as the user gave it, the target's name and, for a scenario, its variant.

    Code below ``roots`` is the user's wherever it lies. ``generators`` run the user's code without being on the stack
    between steps.
    """

    command: tuple[str, ...] = ()
    target: str | None = None
    variant: str | None = None
    roots: tuple[str, ...] = ()
    generators: Callable[[], Iterable[Any]] = tuple


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps of each kind are recorded. Limits are in seconds; ``max_lines`` is per located step.

    With a ``prologue`` the recording begins before the first step ends, for programs that never end one; without it the
    program must end its steps itself. The prologue ends after ``limit_s``. Once the recorded steps took that long, no
    more are recorded, provided that one could be measured.

    ``steps_from`` is the only signal that ends steps, by its name in `SIGNALS`; None means the best that comes.
    Recording starts no earlier than ``at_step``. ``stops`` ends the program once it is recorded. ``window`` counts the
    recordings of one run of the program, from 1; one that ``is_second`` replaces the first. Each ``every``-th signal
    ends a step; times and page faults of such steps may be ``known`` from before. ``anew`` counts the recordings that
    were replaced because the steps after them differed. If they had got longer, ``earlier_step_ns`` are those steps,
    the last of which ended at ``earlier_until_ns`` since the epoch.

    All ranks of a launch (``is_rank``) record the same steps. ``ranks`` of them record everything; the recordings of
    the others are ``is_light``: only collectives and steps.

    ``interlude`` says where the work lies that passes between the steps of a training, if that is recorded: the signal
    ``ended_by`` ends it, as the training goes on.

    If ``one_in`` is more than 1, only that step of so many is recorded: the last of them, a long one. Such steps take
    the share ``share_of_time`` of the time.

    With ``samples_stacks`` the parent process samples the program's stacks when asked.
    """

    wait: int = WAIT_STEPS
    warmup: int = WARMUP_STEPS
    active: int = ACTIVE_STEPS
    after: int = AFTER_STEPS
    prologue: bool = True
    limit_s: float = LIMIT_S
    max_lines: int = 40_000
    steps_from: str | None = None
    at_step: int = 0
    stops: bool = False
    window: int = 1
    is_second: bool = False
    every: int = 1
    anew: int = 0
    ranks: int = FULL_RANKS
    is_rank: bool = False
    is_light: bool = False
    samples_stacks: bool = False
    known_step_ns: tuple[int, ...] = ()
    known_step_faults: tuple[int, ...] = ()
    earlier_step_ns: tuple[int, ...] = ()
    earlier_until_ns: int = 0
    one_in: int = 1
    share_of_time: float = 1.0
    interlude: Interlude | None = None
    ended_by: str | None = None

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup, self.after, self.at_step, self.ranks) < 0 or self.active < 1:
            raise ValueError("wait, warmup, after, at_step and ranks must be at least 0, active at least 1")
        if self.steps_from is not None and self.steps_from not in SIGNALS:
            names = f"{BEST_SIGNAL} or one of {', '.join(SIGNALS)}"
            raise ValueError(f"steps_from must be {names}: not {self.steps_from!r}")

    @property
    def earlier(self) -> dict[str, tuple[int, ...] | int]:
        """The steps behind an earlier recording, by their names in ``run.json``."""
        return {"earlier_step_ns": self.earlier_step_ns, "earlier_until_ns": self.earlier_until_ns}

    @property
    def chosen_signal(self) -> str | None:
        """The only signal that ends steps, as ``run.json`` names it; None for the best one."""
        return None if self.steps_from is None else SIGNALS[self.steps_from]

    @property
    def finds_cycles(self) -> bool:
        """Whether a step may turn out to be several steps of the optimizer, as the user has not chosen what a step is.
        Ranks would find out separately, and some would then record other steps than the rest."""
        chosen = None if self.is_second else self.steps_from
        is_whole = self.every == 1 and self.one_in == 1
        return chosen is None and is_whole and not (self.at_step or self.stops or self.is_rank)

    def for_window(self, window: int, signal: str) -> Plan:
        """The plan of a later window, which begins where ``signal`` ends a step."""
        chosen = next(name for name, given in SIGNALS.items() if given == signal)
        return replace(self, prologue=False, steps_from=chosen, at_step=0, window=window, samples_stacks=False)

    def for_better(self, signal: str) -> Plan:
        """The plan of the recording that replaces one from before ``signal`` came."""
        return replace(self.for_window(2, signal), is_second=True, samples_stacks=self.samples_stacks)

    def for_cycles(self, every: int, cycles: int) -> Plan:
        """The plan of a recording whose steps are ``cycles`` of ``every`` optimizer steps. A cycle may take seconds, so
        none goes by unrecorded between them; how many are timed afterwards depends on how long they are."""
        wait, after = (self.wait, self.after) if every == 1 else (0, 0)
        better = self.for_better(SIGNALS["optimizer"])
        return replace(better, wait=wait, warmup=1, active=cycles, after=after, every=every, anew=self.anew + 1)

    def for_interlude(self, ended_by: str, has_steps: bool, interlude: Interlude) -> Plan:
        """The plan of a recording of what passes between the steps that ``ended_by`` ends, or after the last of them.
        Calls of the model are its steps, unless something else is chosen later. If it has none, it begins at once."""
        window = self.for_window(_INTERLUDE, SIGNALS["forward"])
        short = replace(window, wait=2 * has_steps, active=_FEW_CALLS, after=_FEW_CALLS, limit_s=_INTERLUDE_S)
        return replace(short, is_second=False, ended_by=ended_by, interlude=interlude)

    def for_long_step(self, one_in: int, share_of_time: float) -> Plan:
        """The plan of a recording of the long step that comes once in so many, located and then measured once."""
        return replace(self.for_cycles(1, 1), wait=0, after=0, one_in=one_in, share_of_time=share_of_time)
