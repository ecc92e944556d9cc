"""What is wrong with the recording itself, so that no figure is taken for more than it is."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.trace.events import Category
from profkit.units import format_share

_NOTABLE_OVERHEAD = 0.25
_LAUNCH_CALLS = ("LaunchKernel", "GraphLaunch", "ExtModuleLaunch")


def check_recording(facts: Facts) -> tuple[str, ...]:
    """One sentence per flaw, in the order in which they matter."""
    checks = (_no_steps, _only_located, _kernels_missing, _unlaunched, _overlapping, _overhead)
    notes = [note for check in checks if (note := check(facts)) is not None]
    return (*facts.run.notes, *facts.trace.health, *notes)


def _no_steps(facts: Facts) -> str | None:
    if len(facts.steps) > 1 or facts.steps.source.startswith("the profiler"):
        return None
    return "no steps were found: the whole recording is treated as one step"


def _only_located(facts: Facts) -> str | None:
    if not facts.steps.located.all():
        return None
    return "every recorded step was traced line by line, which slows Python down: times are too long, shares less so"


def _kernels_missing(facts: Facts) -> str | None:
    codes = facts.trace.codes_where(lambda name: any(call in name for call in _LAUNCH_CALLS))
    events = facts.trace.events
    launches = int((np.isin(events.name_code, codes) & (events.category == Category.RUNTIME)).sum())
    if not launches or facts.device.present:
        return None
    noun = "kernel launch" if launches == 1 else "kernel launches"
    return f"{launches:,} {noun} but no kernels: the GPU's side was not recorded"


def _unlaunched(facts: Facts) -> str | None:
    missing, total = facts.launches.unlaunched, len(facts.launches.work)
    if missing < 0.01 * total or not missing:
        return None
    return f"{missing:,} of {total:,} GPU events have no launch record: they cannot be traced back to a line"


def _overlapping(facts: Facts) -> str | None:
    count = facts.tree.overlapping
    if count < 0.01 * len(facts.trace.events):
        return None
    return f"{count:,} host events overlap without nesting: their ends are cut to the event that they begin in"


def _overhead(facts: Facts) -> str | None:
    reference = facts.run.reference_step_ns
    if not reference:
        return None
    overhead = facts.steps.median_ns / float(np.median(reference)) - 1
    if overhead < _NOTABLE_OVERHEAD:
        return None
    return f"recording made the steps {format_share(overhead)} slower: times of many small operators are overstated"
