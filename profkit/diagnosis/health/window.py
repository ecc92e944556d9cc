"""Is the recording the window that it seems to be: are there steps, and does it hold the causes of what it shows?"""

from __future__ import annotations

from collections import Counter

import numpy as np

from profkit.core.units import format_count, format_share, format_time
from profkit.derive.device.driver_memory import allocating
from profkit.derive.facts import Facts
from profkit.derive.steps.backward import backward_nodes
from profkit.derive.steps.boundaries import ONE_UPDATE, ONGOING_LOOP, RENAMED, WHOLE_RECORDING
from profkit.derive.timeline.intervals import intersection, union
from profkit.diagnosis.verdict import BEGINNING, CUT_OFF, NO_STEPS, NO_STEPS_BUT_LOOP, ROUNDS_ONLY
from profkit.patterns.time.idling import LONG_PAUSE_NS, while_queued
from profkit.patterns.time.start_up import find_cold_start, preparing
from profkit.patterns.time.wait_causes import await_unrecorded_work
from profkit.patterns.whole_run.phases import whole_run
from profkit.run.directory import unprofiled_steps
from profkit.run.whole_run import StackActivity
from profkit.trace.events import Category
from profkit.trace.statistics import distinct, median

_NOTABLE_SHARE = 0.01
_MOST_SHARE = 0.5
_MOST_NAMED = 6
_LONGER_FACTOR, _LAST_STEPS = 2.0, 30
"""How much longer the median of how many steps must be: more than machines vary, over steps of one kind."""


def is_notable(part: float, whole: float) -> bool:
    """Whether the effect is worth a line: a hundredth of what it is counted against."""
    return part > 0 and part >= _NOTABLE_SHARE * whole


def check_foreign(facts: Facts) -> str | None:
    """Events of categories that the reader does not know, which no figure includes."""
    foreign = facts.trace.recording.foreign
    if not foreign:
        return None
    total = format_count(sum(count for _, count in foreign), "event")
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(foreign, key=lambda each: -each[1])[:_MOST_NAMED])
    more = f" and {len(foreign) - _MOST_NAMED:,} more" if len(foreign) > _MOST_NAMED else ""
    return f"no figure includes {total} of kinds that profkit does not know: {kinds}{more}"


def check_steps(facts: Facts) -> str | None:
    source = facts.steps.source
    is_loop = source == ONGOING_LOOP
    if facts.is_beginning:
        return ROUNDS_ONLY if is_loop else BEGINNING
    if len(facts.steps) > 1 or source.startswith("the profiler") or source in (RENAMED, ONE_UPDATE):
        return None
    return NO_STEPS_BUT_LOOP if is_loop else NO_STEPS


def check_part(facts: Facts) -> str | None:
    if not facts.run.is_part:
        return None
    return "the only recorded step was cut off: times and shares are those of the part that was recorded"


def check_outdone(facts: Facts) -> str | None:
    """Steps that are calls of a model whose optimizer stepped only after many of them: too seldom, or with too much in
    a step, to be recorded. How much of the run they leave out shows by the looks at the program's stack. Where most
    calls are followed by a backward pass, nothing is left out but the updates: L-BFGS calls the model, and
    differentiates, again and again within one step of its own."""
    run, whole = facts.run, whole_run(facts)
    if not run.was_outdone or run.was_stopped or run.step_signal != "forward" or _hold_backward_passes(facts):
        return None
    times = Counter[str]()
    for stack in facts.account.stacks:
        times[stack.activity] += stack.time_ns
    seen_ns = sum(times[one.value] for one in (StackActivity.BACKWARD, StackActivity.UPDATE))
    share = f", {format_share(seen_ns / whole.programs_ns)} of the run," if whole is not None and seen_ns else ""
    return (
        "the steps are calls of the model, and the optimizer stepped only after them: backward passes and updates"
        f"{share} were not recorded"
    )


def _hold_backward_passes(facts: Facts) -> bool:
    """Whether half of the measured steps hold a backward pass, or more."""
    steps, nodes = facts.steps, np.flatnonzero(backward_nodes(facts.trace))
    index = steps.index_of(facts.trace.events.start_ns[nodes])
    held = np.bincount(index[index >= 0], minlength=len(steps)) > 0
    return bool(2 * held[steps.measured].sum() >= steps.measured_count)


def check_cut_off(facts: Facts) -> str | None:
    if not facts.trace.recording.is_cut_off:
        return None
    return CUT_OFF


def check_located(facts: Facts) -> str | None:
    if not facts.steps.located.all():
        return None
    return "every recorded step was traced line by line, which slows Python down: times are too long, shares less so"


def check_later(facts: Facts) -> str | None:
    """The last timed steps take much longer than those around the recording."""
    usual, later = unprofiled_steps(facts.run, None)
    if not usual or len(later) < _LAST_STEPS:
        return None
    recorded_ns, last_ns = median(usual), median(later[-_LAST_STEPS:])
    if last_ns <= _LONGER_FACTOR * recorded_ns:
        return None
    return (
        f"later steps take {format_time(last_ns)}, those around the recorded ones {format_time(recorded_ns)}: "
        "record later ones with --at-step, or choose the moment with SIGUSR1"
    )


def check_first_calls(facts: Facts) -> str | None:
    """What happens once in a run: code is loaded onto the device, libraries set themselves up, and memory is taken from
    the driver."""
    trace, steps, first = facts.trace, facts.steps, facts.trace.mask_of(facts.first_calls)
    calls = np.flatnonzero(facts.tree.outermost(first | allocating(trace)))
    index = facts.step_of(calls)
    left_out = (index >= 0) & ~(steps.measured | steps.located)[index]
    kept = (index >= 0) & steps.measured[index] & first[calls]
    gone_ns, kept_ns = (int(trace.events.duration_ns[calls[chosen]].sum()) for chosen in (left_out, kept))
    what = "first calls (code is loaded, libraries and the allocator start)"
    if is_notable(kept_ns, window_ns(facts)):
        return f"{what} took {format_time(kept_ns)} of the measured time: they come once, and later steps take less"
    cold, count = find_cold_start(facts), len(distinct(index[left_out]))
    if cold is not None and (index[left_out] == cold.step).all():  # then the whole of what the start costs is told
        return None
    if not is_notable(gone_ns, int(steps.duration_ns[distinct(index[left_out])].sum())):
        return None
    counted_steps = format_count(count, "recorded step")
    return f"{what} took {format_time(gone_ns)} in {counted_steps}, left out of the measured ones"


def describe_start(facts: Facts) -> str:
    """What most of the recording was spent on if that was not its steps but compiling, or loading code. Empty if it was
    not, and if all of it counts as one step: then this is a row of the table."""
    if not facts.has_trace or facts.steps.source == WHOLE_RECORDING:
        return ""
    trace, events = facts.trace, facts.trace.events
    spent_ns = preparing(facts).total_ns
    known = ~trace.in_categories(Category.OTHER, Category.PYTHON)  # Python frames were open before the start
    if not known.any():
        return ""
    whole_ns = int(events.ends_of(np.flatnonzero(known)).max() - events.start_ns[known].min())
    if spent_ns <= _MOST_SHARE * whole_ns:
        return ""
    share = format_share(spent_ns / max(whole_ns, 1))
    return (
        f"Compiling or loading code takes {share} of the recording, {format_time(spent_ns)} of {format_time(whole_ns)}"
    )


def check_inherited_work(facts: Facts) -> str | None:
    """The first work begins long after its launch. Only if the host is as far ahead later, too, did the device work on
    what was launched earlier."""
    lag_ns = facts.device.first_lag.total_ns
    if not is_notable(lag_ns, window_ns(facts)):
        return None
    if not facts.device.is_behind:
        return f"the first kernel began {format_time(lag_ns)} after its launch, cause not recorded"
    return (
        f"the GPU spent its first {format_time(lag_ns)} on work launched before the recording began, about which "
        "nothing is known"
    )


def check_waits(facts: Facts) -> str | None:
    """Waits for the device with no recorded work to wait for: their cause lies outside the recording."""
    if not facts.device.present:
        return None
    waits, start_ns = facts.waits, facts.trace.events.start_ns[facts.waits.rows]
    unexplained = ~waits.own & await_unrecorded_work(facts)
    lost_ns = int(waits.duration_ns[unexplained].sum())
    if not is_notable(lost_ns, window_ns(facts)):
        return None
    times, first = format_count(int(unexplained.sum()), "time"), int(start_ns[unexplained].min())
    return (
        f"the host waits {times}, {format_time(lost_ns)} in all and first {format_time(first)} into the recording, "
        "for unrecorded GPU work: the GPU may have been busy"
    )


def check_queued(facts: Facts) -> str | None:
    """Long idle times of the device although it has work: it does something that is missing from the recording."""
    idle = union(facts.steps.begun_ns, facts.steps.done_ns).minus(facts.device.any_occupied)
    queued = intersection(idle.clipped_to(*facts.steps.window_ns), while_queued(facts))
    length_ns = queued.end_ns - queued.start_ns
    lost_ns = int(length_ns[length_ns >= LONG_PAUSE_NS].sum())
    if not is_notable(lost_ns, window_ns(facts)):
        return None
    return f"the GPU seems idle for {format_time(lost_ns)} with work queued: it may wait for work that was not recorded"


def check_nesting(facts: Facts) -> str | None:
    count = facts.tree.overlapping
    if not is_notable(count, len(facts.trace.events)):
        return None
    return f"host events overlap without nesting ({count:,}): they are cut where the event that they began in ends"


def window_ns(facts: Facts) -> int:
    """The measured time. The device may go on when the host is done with its last step."""
    start_ns, end_ns = facts.steps.window_ns
    return max(end_ns - start_ns, facts.steps.measured_ns)
