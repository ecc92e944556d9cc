"""The program with its own batch, with twice and with four times as much, each in a fresh copy of its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from profkit.core.units import format_count
from profkit.diagnosis.fixing.proving import last_words
from profkit.diagnosis.fixing.turns import Stage, TooLong

TRIED = (1, 2, 4)
"""Times the program's batch."""
_WARM_UP = 3
"""Steps that do not count: lazy initialisation, cold caches, first touch of memory."""
_LEAST_LAPS = 4
"""Timed spans of the same number of samples: their median is none of the longest and none of the shortest."""


class SeenSteps(Struct, frozen=True):
    """What the process says of itself (`profkit.collect.launch.other_batch`): when each step ended in nanoseconds, how
    many samples it took, and how long the main thread had waited for a CPU until then; and after how many steps it
    waited for the device."""

    steps: tuple[tuple[int, int, int], ...] = ()
    of_optimizer: bool = False
    sizes: tuple[int, ...] = ()
    fixed: tuple[str, ...] = ()
    stopped: str = ""
    saved: int = 0
    lap: int = 1
    peak_bytes: int = 0
    device_peak_bytes: int = 0


class BatchTrial(Struct, frozen=True):
    """The program with so many ``times`` its batch: the samples of a step, its time, and the peak memory, of the device
    if it uses one. For the share ``crowded`` of the trial other programs had the CPUs. ``problem`` says why there is no
    time."""

    times: int
    samples: int = 0
    step_s: float = 0.0
    peak_bytes: int = 0
    crowded: float = 0.0
    problem: str = ""

    @property
    def rate(self) -> float:
        """Samples a second; 0 if unknown."""
        return self.samples / self.step_s if self.step_s else 0.0


class BatchTrials(Struct, frozen=True):
    """A trial for each batch, the program's own first. ``spread`` is the share by which two trials of that differ, None
    if there is only one. ``trains`` tells whether an optimizer stepped, ``saved`` how often one trial wrote with
    `torch.save`, into its copy."""

    trials: tuple[BatchTrial, ...]
    spread: float | None = None
    trains: bool = False
    saved: int = 0

    @property
    def own(self) -> BatchTrial:
        return self.trials[0]

    def gain(self, trial: BatchTrial) -> float:
        """How many times as many samples a second as with the program's own batch."""
        return trial.rate / self.own.rate if self.own.rate else 0.0


def try_batches(stage: Stage, most_s: float, tell: Callable[[str], None]) -> BatchTrials:
    """Run the program with each batch for some steps, with its own once more at the end. A trial may take ``most_s``
    seconds. After one that fails no larger batch is tried."""
    trials: list[BatchTrial] = []
    first = SeenSteps()
    for times in TRIED:
        tell(f"{times} times the batch" if times > 1 else "the program's own batch")
        trial, seen = _try(stage, times, most_s)
        first = first if trials else seen
        trials.append(trial)
        if trial.problem:
            break
    spread = None
    if len(trials) > 1 and not trials[1].problem:
        tell("the program's own batch again")
        again, _ = _try(stage, 1, most_s)
        if not again.problem:
            spread = abs(again.rate / trials[0].rate - 1)
            trials[0] = max(trials[0], again, key=lambda trial: trial.rate)
    return BatchTrials(tuple(trials), spread, first.of_optimizer, first.saved)


def _try(stage: Stage, times: int, most_s: float) -> tuple[BatchTrial, SeenSteps]:
    result = stage.folder / "batches.json"
    result.unlink(missing_ok=True)
    options = [f"--result={result}", f"--times={times}", f"--inside={stage.folder}", f"--kept={stage.tree.root}"]
    try:
        status, errors = stage.try_out("other_batch", options, most_s)
    except TooLong:
        return BatchTrial(times, problem=f"too few steps within {most_s:.0f} s"), SeenSteps()
    seen = _read(result)
    return judge(times, seen, last_words(errors) if status else ""), seen


def _read(result: Path) -> SeenSteps:
    try:
        return msgspec.json.decode(result.read_bytes(), type=SeenSteps)
    except (OSError, msgspec.DecodeError):
        return SeenSteps()


def judge(times: int, seen: SeenSteps, failure: str = "") -> BatchTrial:
    """A trial by what its process said; ``failure`` is the program's last word if it failed."""
    peak = seen.device_peak_bytes or seen.peak_bytes
    laps = _laps(seen)
    if laps and seen.sizes and not min(samples for samples, _ in laps):
        return BatchTrial(times, problem="how many samples a batch has cannot be told")
    usual, number = Counter(samples for samples, _ in laps).most_common(1)[0] if laps else (0, 0)
    if seen.sizes and number >= _LEAST_LAPS:
        lap_s = median(ns for samples, ns in laps if samples == usual) / 1e9
        return BatchTrial(
            times, round(usual / seen.lap), lap_s / seen.lap, peak, _crowded(seen) if seen.lap == 1 else 0.0
        )
    return BatchTrial(times, problem=_problem(seen, failure))


def _problem(seen: SeenSteps, failure: str) -> str:
    if seen.stopped:
        return f"the trial was ended: the program was about to write to {seen.stopped}, outside of its copy"
    if failure:
        return f"the program fails: {failure}"
    if not seen.sizes:
        return seen.fixed[0] if seen.fixed else "no DataLoader was made, so the program makes its batches itself"
    steps = "step" if seen.of_optimizer else "batch"
    return f"too few to tell: {format_count(len(seen.steps), steps)} in all" if seen.steps else "no batch was taken"


def _laps(seen: SeenSteps) -> list[tuple[int, int]]:
    """Of each span between two waits for the device: the samples, and the nanoseconds. Without a device other programs'
    time is taken out; a device goes on meanwhile."""
    places = range(seen.lap if seen.lap > 1 else _WARM_UP, len(seen.steps), seen.lap)
    counts = [samples for _, samples, _ in seen.steps]
    clock = [ns - crowded_ns if seen.lap == 1 else ns for ns, _, crowded_ns in seen.steps]
    return [(sum(counts[begin + 1 : end + 1]), clock[end] - clock[begin]) for begin, end in pairwise(places)]


def _crowded(seen: SeenSteps) -> float:
    """The share of the time in which other programs had the CPUs that this one waited for."""
    (begun_ns, _, before_ns), (ended_ns, _, after_ns) = seen.steps[0], seen.steps[-1]
    return (after_ns - before_ns) / max(ended_ns - begun_ns, 1)
