"""``python -m profkit.collect.experiments.process`` runs experiments: a request on stdin, answers on stdout.

Both forms of a case run in alternation, A B A B, after a warm-up. Other load only adds to the time, and unequally: two
threads that wait for each other lose more to a third than a single one does. So a form's time is that of its shorter
turns, and the spread comes from the rounds, each compared within itself. Where other programs have the processor for
most of the time, no turn is undisturbed: both forms run again in one thread, and what it waited for a processor is left
out of each turn. What remains, such as a cold cache, hits both forms of a round, so their ratio is that of the middle
round. Each experiment answers with a line of JSON as soon as it is done, so that a failure or a stop loses none of the
earlier answers.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from statistics import median

import msgspec
import torch

from profkit.collect.experiments.implementations import Call, CannotRun, forms_of
from profkit.collect.machine.page_faults import count_crowded_ns
from profkit.collect.machine.rates import keep_rates
from profkit.collect.program.guard import describe
from profkit.core.processor import processor_name
from profkit.run.experiment import Answer, Experiment, Measurement, Request

_BUDGET_S = 2.0
"""For all cases of an experiment together."""
_WARM_UP = 2
_ROUNDS = (5, 60)
_TURN_NS = 5_000_000
"""The shortest turn, so that the clock and the switch between forms add less than one per cent."""
_LONGEST_S = 12.0
"""For one case: a call of a second is not worth a minute of measuring."""
_LOW = 0.1
_CROWDED = 0.5
"""Largest share of the time in which other processes may have the CPU: beyond it, no turn is undisturbed. Two threads
that wait for each other took 40 times as long beside four programs on two CPUs, in either form."""
_OF_THREADS = "fewer-threads"
"""The kind of experiment of which one thread shows nothing."""
_BESIDE_OTHERS = 0.8
"""The least width of a range where waits were left out, to either side: beside six processes on two CPUs, 7 of 8
answers lay as near to those of the quiet machine. The same cache serves all."""
_WIDEST = 3.0
"""Between the ends of a range: beyond it, it says neither whether a change wins nor how much."""
_SPREAD = (10, 90)
"""Percentiles of the rounds that bound the range."""


@dataclass(frozen=True, slots=True)
class Turns:
    """How long both forms took, per call, round by round, in nanoseconds."""

    first_ns: list[float]
    second_ns: list[float]
    waited: float = 0.0
    """The share of the time that was waiting for a busy processor, if it was so large that it is left out."""

    def times(self) -> tuple[float, float]:
        """Each form's time. Where no turn was undisturbed, their ratio is that of the middle round."""
        if not self.waited:
            return self.undisturbed()
        took = median(self.first_ns)
        return took, took * median(b / a for a, b in zip(self.first_ns, self.second_ns, strict=True))

    def undisturbed(self) -> tuple[float, float]:
        """Each form's time with little other load: a low quantile, because a single turn may be short by chance."""
        first, second = (sorted(took)[round(_LOW * (len(took) - 1))] for took in (self.first_ns, self.second_ns))
        return first, second

    def ratios(self) -> tuple[float, float]:
        """The second form's time as a share of the first's, per round: low and high."""
        ratios = sorted(b / a for a, b in zip(self.first_ns, self.second_ns, strict=True))
        low, high = (ratios[round(at / 100 * (len(ratios) - 1))] for at in _SPREAD)
        return low, high


def run(experiment: Experiment, device: str, budget_s: float = _BUDGET_S) -> Measurement:
    """Measure one experiment; raises `CannotRun` and whatever PyTorch raises."""
    if not experiment.cases:
        raise CannotRun("there is nothing to run")
    first = second = weights = middle = low = high = waited = 0.0
    for case in experiment.cases:
        a, b = forms_of(experiment, case, device)
        share_s, may_wait = budget_s / len(experiment.cases), device == "cpu" and experiment.kind != _OF_THREADS
        turns = _take_undisturbed(a, b, share_s, device, may_wait)
        (took, took_instead), (least, most) = turns.times(), turns.ratios()
        waited = max(waited, turns.waited)
        first += case.calls * took
        second += case.calls * took_instead
        weight = case.recorded_ns or case.calls * took
        weights += weight
        middle += weight * took_instead / max(took, 1e-9)
        low += weight * least
        high += weight * most
    if not first > 0:
        raise CannotRun("the recorded calls are too short to be measured")
    factor, low, high = (one / weights for one in (middle, low, high))
    if waited and high > _WIDEST * low:
        raise CannotRun("other programs had the processor for most of the time, and the rounds differ too much")
    if waited:
        low, high = min(low, _BESIDE_OTHERS * factor), max(high, factor / _BESIDE_OTHERS)
    return Measurement(factor, min(factor, low), max(factor, high), round(first), round(second), waited)


def _take_undisturbed(a: Call, b: Call, budget_s: float, device: str, may_wait: bool) -> Turns:
    """The turns; if other programs used the processor most of the time, those of one thread without its waits. Raises
    `CannotRun` if these ``may_wait`` not, as nothing tells them."""
    before, began = count_crowded_ns(), time.perf_counter_ns()
    turns = take_turns(a, b, budget_s, device)
    after, took = count_crowded_ns(), time.perf_counter_ns() - began
    if before is None or after is None or after - before <= _CROWDED * took:
        return turns
    if not may_wait:
        raise CannotRun("other programs had the processor for most of the time")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return replace(take_turns(a, b, budget_s, device, without_waits=True), waited=(after - before) / took)
    finally:
        torch.set_num_threads(threads)


def take_turns(a: Call, b: Call, budget_s: float, device: str, without_waits: bool = False) -> Turns:
    """Time two calls in alternation for about ``budget_s``, at least a few rounds. Raises `CannotRun` if that takes too
    long.

    The turns of both last equally long, because on a busy machine a longer turn would be interrupted more often.
    """
    began = time.perf_counter()
    for _ in range(_WARM_UP):
        warm_ns = max(_time(a, 1, device), 1.0), max(_time(b, 1, device), 1.0)
    turn_ns = max(_TURN_NS, *warm_ns)
    times_a, times_b = (max(1, round(turn_ns / one_ns)) for one_ns in warm_ns)
    turns, end, latest = Turns([], []), time.perf_counter() + budget_s, began + _LONGEST_S
    while len(turns.first_ns) < _ROUNDS[0] or (time.perf_counter() < end and len(turns.first_ns) < _ROUNDS[1]):
        if time.perf_counter() > latest:
            raise CannotRun("the recorded calls take too long to be measured in seconds")
        turns.first_ns.append(_time(a, times_a, device, without_waits))
        turns.second_ns.append(_time(b, times_b, device, without_waits))
    return turns


def _time(call: Call, repeats: int, device: str, without_waits: bool = False) -> float:
    """Nanoseconds per call, also without those in which this thread waited for a busy processor."""
    _wait_for(device)
    waited, start = count_crowded_ns() if without_waits else 0, time.perf_counter_ns()
    for _ in range(repeats):
        call()
    _wait_for(device)
    took = time.perf_counter_ns() - start
    waits = (count_crowded_ns() or 0) - (waited or 0) if without_waits else 0
    return max(took - waits, 1) / repeats


def _wait_for(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def choose_device(request: Request) -> str:
    """The device that the recording names. Raises `CannotRun` if this machine does not have it."""
    if request.device == "cpu":
        if not request.processor:
            raise CannotRun("the recording does not say on which processor it was made")
        if request.processor != processor_name():
            raise CannotRun(f"the recording was made on another processor, {request.processor:.80}")
        return "cpu"
    if not request.device or not torch.cuda.is_available() or torch.cuda.get_device_name() != request.device:
        raise CannotRun(f"there is no {request.device or 'such GPU'} in this machine")
    return "cuda"


def answer(experiment: Experiment, device: str) -> Answer:
    """A measurement, or why there is none."""
    try:
        return Answer(run(experiment, device))
    except CannotRun as reason:
        return Answer(failed=str(reason))
    except Exception as error:  # PyTorch may refuse these shapes
        return Answer(failed=describe(error)[:200])


def main() -> None:
    """Answer the request on stdin. What PyTorch itself prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    try:
        device = choose_device(request)
    except CannotRun as reason:
        refusal = msgspec.json.encode(Answer(failed=str(reason)))
        answers.write((refusal + b"\n") * len(request.experiments))
        answers.flush()
        return
    if request.threads > 0:
        torch.set_num_threads(request.threads)
    for experiment in request.experiments:
        answers.write(msgspec.json.encode(answer(experiment, device)) + b"\n")
        answers.flush()
    keep_rates(device)


if __name__ == "__main__":
    main()
