"""Accounts of runs that were only watched, for rules about the whole run."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.run.directory import CallSite, Run
from profkit.run.whole_run import (
    DeviceChoice,
    DeviceSample,
    DeviceUse,
    Place,
    RunAccount,
    StackActivity,
    StackTime,
)
from profkit.trace.events import no_trace

S = 1_000_000_000
TRAIN = Place(CallSite("train.py", 4, "main", "loss.backward()"), loop=3, trains=True)


def watched(*seen, trained_s=20, first_s=30, last_s=60, until_s=100, **more) -> Facts:
    """Training between two times, and ``seen``: pairs of a stack from `doing` and its place. A column is a second."""
    places = (TRAIN, *(place for _, place in seen))
    training = StackTime(StackActivity.BACKWARD.value, (0,), trained_s * S, 0, first_s * S, last_s * S, 9, 1)
    stacks = (training, *(with_place(stack, at) for at, (stack, _) in enumerate(seen, 1)))
    columns = [[] for _ in range(until_s)]
    for number, stack in enumerate(stacks):
        covered = range(stack.first_ns // S, max(stack.last_ns // S, stack.first_ns // S + 1))
        chosen = covered if stack.visits == 1 else covered[:: max(1, len(covered) // stack.visits)][: stack.visits]
        for column in chosen:
            columns[column].append((number, stack.time_ns // len(chosen)))
    account = RunAccount(0, S, until_s * S, places, stacks, S, tuple(map(tuple, columns)), is_over=True, **more)
    return Facts(no_trace(), Run(), account=account)


def doing(activity, time_s, first_s, last_s, *, cpu_s=0.0, visits=1):
    """A stack without its place."""
    times = int(time_s * S), int(cpu_s * S), int(first_s * S), int(last_s * S)
    return StackTime(activity.value, (), *times, 1, visits)


def with_place(stack, at):
    times = stack.time_ns, stack.cpu_ns, stack.first_ns, stack.last_ns
    return StackTime(stack.activity, (at,), *times, stack.looks, stack.visits)


def line(number, source="", function="main", file="train.py"):
    return Place(CallSite(file, number, function, source))


def device(index=0, *, busy=0.0, samples=20, used=(0, 0), clock=1980, reasons=0, most=1980):
    """A device whose memory goes from one size to the other in all samples but the first."""
    looks = (DeviceSample(at * S, busy, used[min(at, 1)], clock, reasons) for at in range(samples))
    return DeviceUse(index, "NVIDIA H100", 80 << 30, most, tuple(looks))


__all__ = ["DeviceChoice", "S", "StackActivity", "device", "doing", "line", "watched"]
