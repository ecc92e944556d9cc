"""Where the step's time went: exclusive shares that add up to the step."""

from __future__ import annotations

import numpy as np

from profkit.derive.device import Device
from profkit.derive.intervals import Intervals, union
from profkit.derive.lines import Lines
from profkit.derive.steps import Steps
from profkit.derive.tree import Tree
from profkit.derive.updates import Updates
from profkit.trace.events import Bools, Category, Trace

Share = tuple[str, int]
"""A label and nanoseconds per step."""


def share_out(
    trace: Trace, tree: Tree, steps: Steps, lines: Lines, device: Device, updates: Updates
) -> tuple[Share, ...]:
    """Split the measured steps by what the device did, or without a device by what the main thread did."""
    update = updates.on(trace.events.lane == steps.main_lane)
    parts = (
        _device_parts(trace, tree, steps, device, update)
        if device.present
        else _host_parts(trace, tree, steps, lines, update)
    )
    left = _measured_time(steps)
    shares = []
    for label, covered in parts:
        before = left.total_ns
        left = left.minus(covered)
        shares.append((label, before - left.total_ns))
    rest = "idle: the host launches, computes or waits" if device.present else "Python and all else between operators"
    shares.append((rest, left.total_ns))
    count = max(steps.measured_count, 1)
    return tuple((label, total // count) for label, total in shares if total > 0)


def _measured_time(steps: Steps) -> Intervals:
    return union(steps.begun_ns[steps.measured], steps.done_ns[steps.measured])


def _device_parts(
    trace: Trace, tree: Tree, steps: Steps, device: Device, update: Intervals
) -> list[tuple[str, Intervals]]:
    events = trace.events
    start, end = events.start_ns[device.work], events.ends_of(device.work)
    talking = union(start[device.collective], end[device.collective])
    return [
        ("device: computing", device.computing),
        ("device: communicating, nothing computed meanwhile", talking),
        ("device: copying and clearing memory", device.busy),
        ("device: at work launched before the recording", device.inherited),
        ("idle: waiting for data", _on_main(trace, tree, steps, loading(trace))),
        ("idle: in the optimizer's step", update),
    ]


def _host_parts(trace: Trace, tree: Tree, steps: Steps, lines: Lines, update: Intervals) -> list[tuple[str, Intervals]]:
    operators = trace.events.category == Category.OPERATOR
    pauses = trace.events.category == Category.PAUSE
    return [
        ("profkit itself, left out of the step", _on_main(trace, tree, steps, pauses)),
        ("waiting for data", _on_main(trace, tree, steps, loading(trace))),
        ("optimizer", update),
        ("backward", _on_main(trace, tree, steps, lines.backward)),
        ("operators of the forward pass and others", _on_main(trace, tree, steps, operators)),
    ]


def loading(trace: Trace) -> Bools:
    """The main thread's requests for the next batch."""
    return _annotation(trace, "enumerate(DataLoader)#")


def optimizing(trace: Trace) -> Bools:
    """The steps of optimizers."""
    return _annotation(trace, "Optimizer.step#")


def _annotation(trace: Trace, prefix: str) -> Bools:
    named = trace.where_name(lambda name: name.startswith(prefix))
    wanted: Bools = named & (trace.events.category == Category.ANNOTATION)
    return wanted


def _on_main(trace: Trace, tree: Tree, steps: Steps, wanted: Bools) -> Intervals:
    rows = np.flatnonzero(wanted & (trace.events.lane == steps.main_lane))
    return union(trace.events.start_ns[rows], tree.end_ns[rows])
