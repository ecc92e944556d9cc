"""In every step the GPU's memory is handed back to the driver, and then asked for again.

What it detects
Steps, at least half of those recorded, in which memory of the GPU is freed by the driver (`cudaFree`, `hipFree`, and
what takes their place with expandable segments), where the step would be 0.5 % shorter without that and without the
calls that get new memory. Not reported: memory that is only asked for, as while a program starts or grows; what is
freed before the first kernel, which sets the GPU up; steps that capture a CUDA graph; and what happens while code is
compiled. Without a GPU, lines that call `empty_cache()` in the steps, for information. In a memory snapshot: memory
that is handed back four times or more, at least half of which is asked for again before the next time.

Why is this bad?
PyTorch keeps the memory of tensors that are gone, and the next tensor takes it within a microsecond. `cudaMalloc` and
`cudaFree` take a hundred each, and more for large blocks, and `cudaFree` waits until the GPU has finished all its work.
`torch.cuda.empty_cache()` frees everything that lies unused, so that the next step has to ask for all of it again; it
gives other programs memory, never this one. Near the limit PyTorch does the same by itself, inside an operator that
finds no room.

Example
    for x, y in loader:
        train_step(x, y)
        torch.cuda.empty_cache()

Use instead
    for x, y in loader:
        train_step(x, y)

How the saving is estimated
The recorded steps are replayed without the calls that free the GPU's memory or get it from the driver, and without the
waits between them. The host then runs ahead of the GPU as far as the rest of the step lets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.device.driver_memory import freeing, getting
from profkit.derive.device.launches import launch_calls
from profkit.derive.facts import Facts
from profkit.derive.steps.steps import compiling
from profkit.evidence.allocator.flushes import flushes
from profkit.evidence.allocator.lines import site_of
from profkit.evidence.calls_between import marks_calling, sites_of_calls
from profkit.evidence.frequency import in_most_steps, per_step, times_per_step
from profkit.evidence.program import spent_ns
from profkit.findings import LOW_FROM, Kind, Location, Severity
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places, name_lines
from profkit.savings.edits import Edit, remove
from profkit.savings.replay import replay
from profkit.trace.events import NONE, Bools, Category, Int32s, Rows
from profkit.trace.values import among, distinct
from profkit.units import format_bytes, format_count, format_share, format_time

_CALL = "empty_cache"
_FRAME = re.compile(r"torch/.*\.py\(\d+\): empty_cache$")
_UNCERTAINTY = 0.15
"""CUPTI's part in calls that it records."""
_NEVER = np.iinfo(np.int64).max


class _Cause(Struct, frozen=True):
    """Who frees, and what to change."""

    who: str
    fix: str


_EMPTIED = _Cause(
    "`empty_cache()` hands",
    "Remove the call: what tensors leave behind is used again without it, and it makes no room for the program itself. "
    "Where fragments are the reason, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
)
_SHORT_OF_MEMORY = _Cause(
    "PyTorch's allocator finds no room, or a library takes memory of its own: operators hand",
    "Leave the allocator more room: a smaller batch, inputs padded to a few sizes, so that the blocks of the last step "
    "fit, or `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
)
_UNKNOWN = _Cause(
    "Something outside of PyTorch's operators hands",
    "Look for `torch.cuda.empty_cache()` in the step and in what it calls, and remove it; and for "
    "`PYTORCH_NO_CUDA_MEMORY_CACHING` in the environment, which switches PyTorch's cache off.",
)


class _Flush(Struct, frozen=True):
    """The calls in the measured steps that free memory, those that get it, the waits that come with the first, and by
    free the Python frame of `empty_cache` and the line, `NONE` where they are not known."""

    frees: Rows
    gets: Rows
    waits: Rows
    frame: Rows
    site: Int32s

    @property
    def gone(self) -> Rows:
        frames = distinct(self.frame[self.frame != NONE])
        return np.concatenate([self.frees, self.gets, self.waits, frames])

    @property
    def is_emptied(self) -> bool:
        return bool((self.frame != NONE).any() or (self.site != NONE).any())


_LEAST_TIMES = 4
"""Once or twice may be a change of phase, as from training to an evaluation."""
_LEAST_AGAIN = 0.5


def _by_snapshot(facts: Facts) -> Iterator[Suspicion]:
    """A snapshot has no times: how much the step would gain is not known."""
    for one in flushes(facts):
        if one.times < _LEAST_TIMES or one.again_bytes < _LEAST_AGAIN * one.freed_bytes:
            continue
        cause, site = _EMPTIED if one.by_program else _SHORT_OF_MEMORY, site_of(facts, one.frame)
        yield Suspicion(
            message=f"{cause.who} {format_bytes(one.freed_bytes)} of the GPU's memory back to the driver, in "
            f"{one.times} goes, and it asks for {format_bytes(one.again_bytes)} of that again. The host waits for the "
            "GPU each time.",
            fix=cause.fix,
            places=Places(Location.of(site)) if site is not None else Places(),
            count=one.times,
            confidence=0.8,
            severity=Severity.LOW,
            evidence={"times": one.times, "freed_bytes": one.freed_bytes, "bytes_asked_for_again": one.again_bytes},
        )


@rule(Kind.FAULT, Need.COMPUTE, by_snapshot=_by_snapshot)
def allocator_flush_in_step(facts: Facts) -> Iterator[Suspicion]:
    """On a GPU judge the driver's calls of all steps together; without one look for lines that would lead to them."""
    if not facts.device.present:
        yield from _called_without_gpu(facts)
        return
    if not facts.trace.rows(Category.RUNTIME).size:
        raise CannotLook("the recording does not hold the calls of the GPU's runtime")
    frees = _recurring_frees(facts)
    if frees.size:
        flush = _describe(facts, frees)
        edit = remove(flush.gone, uncertainty=_UNCERTAINTY)
        if replay(facts, edit).fraction >= LOW_FROM:
            yield _suspect(facts, flush, edit)


def _suspect(facts: Facts, flush: _Flush, edit: Edit) -> Suspicion:
    inside = facts.calling[flush.frees] >= 0
    cause = _EMPTIED if flush.is_emptied else _SHORT_OF_MEMORY if inside.mean() > 0.5 else _UNKNOWN
    outermost = facts.measured_rows(facts.tree.outermost(facts.trace.mask_of(flush.gone)))
    spent = facts.steps.per_step_ns(int(spent_ns(facts, outermost).sum()))
    frees, gets = (format_count(times_per_step(facts, rows), "time") for rows in (flush.frees, flush.gets))
    again = f", and asks it for memory {gets}" if flush.gets.size else ""
    one = "" if len(facts.steps) > 1 else ", by the only one that was recorded"
    return Suspicion(
        message=f"{cause.who} the GPU's memory back to the driver {frees} a step{one}{again}: {format_time(spent)} in "
        f"all, and the host waits for the GPU each time. Without that the step would be "
        f"{format_share(replay(facts, edit).fraction)} shorter.",
        fix=cause.fix,
        rows=flush.frees,
        edit=edit,
        confidence=0.9 if len(facts.steps) > 1 else 0.6,
        places=name_lines(facts, distinct(flush.site[flush.site != NONE]).tolist()),
        evidence={"frees_per_step": round(per_step(facts, flush.frees), 2), "time_ns_per_step": spent},
    )


def _recurring_frees(facts: Facts) -> Rows:
    """The calls that free memory, if most steps hold some: not before the first kernel, as CUDA begins with a
    `cudaFree(0)`, nor in a step that captures a graph, which empties the cache first."""
    events = facts.trace.events
    frees = _measured(facts, freeing(facts.trace))
    launches = launch_calls(facts.trace)
    captures = facts.trace.where_name(lambda name: "BeginCapture" in name) & (events.category == Category.RUNTIME)
    begun = events.start_ns[frees] > events.start_ns[launches].min(initial=_NEVER)
    frees = frees[begun & ~among(facts.step_of(frees), facts.step_of(np.flatnonzero(captures)))]
    recurring: Rows = frees if frees.size and in_most_steps(facts, frees) else frees[:0]
    return recurring


def _measured(facts: Facts, calls: Bools) -> Rows:
    """Those of the program in the measured steps, and none of them while code is compiled."""
    events = facts.trace.events
    aside = facts.tree.under((events.category == Category.PAUSE) | compiling(facts.trace))
    return facts.measured_rows(calls & facts.serial_lanes[events.lane] & ~aside)


def _describe(facts: Facts, frees: Rows) -> _Flush:
    """In a recording of one step, what is asked for before anything was freed would be asked for anyway."""
    events = facts.trace.events
    gets = _measured(facts, getting(facts.trace))
    if len(facts.steps) == 1:
        gets = gets[events.start_ns[gets] > events.start_ns[frees].min()]
    frames = events.category == Category.PYTHON
    frames &= facts.trace.matching(_FRAME)
    frame = facts.tree.nearest_ancestor(facts.tree.outermost(frames), of=frees)
    return _Flush(frees, gets, _waits_with(facts, frees), frame, sites_of_calls(facts, frees, _CALL))


def _waits_with(facts: Facts, frees: Rows) -> Rows:
    """The waits that come just before or just after one that frees, among a thread's calls of the runtime, and in the
    same operator, or outside of all: before it frees, PyTorch waits for what still uses the memory."""
    events = facts.trace.events
    calls = facts.trace.rows(Category.RUNTIME)
    calls = calls[np.lexsort((events.start_ns[calls], events.lane[calls]))]
    freeing, operator = among(calls, frees), facts.calling[calls]
    together = (operator[1:] == operator[:-1]) & (events.lane[calls[1:]] == events.lane[calls[:-1]])
    beside = np.zeros(len(calls), dtype=bool)
    beside[:-1] |= freeing[1:] & together
    beside[1:] |= freeing[:-1] & together
    waits = facts.waits.rows[~facts.waits.own]
    with_frees: Rows = waits[among(waits, calls[beside])]
    return with_frees


def _called_without_gpu(facts: Facts) -> Iterator[Suspicion]:
    marks = marks_calling(facts, _CALL)
    if not facts.steps.located.any():
        raise CannotLook("no GPU was used, and which lines ran was not recorded (run the program under profkit)")
    if marks.size:
        count = len(marks)
        yield Suspicion(
            message=f"`empty_cache()` is called {format_count(count, 'time')} in a step. Here, without a GPU, that "
            "does nothing; on one the next step would have to ask the driver for all of its memory again.",
            fix=_EMPTIED.fix,
            count=count,
            confidence=0.8,
            severity=Severity.INFO,
            places=name_lines(facts, facts.trace.events.site[marks].tolist()),
            evidence={"calls_per_step": count},
        )
