"""In every step the GPU's memory is handed back to the driver, and then asked for again.

What it detects
At least half of the recorded steps free memory of the GPU in the driver (`cudaFree`, `hipFree`, and their counterparts
with expandable segments), and the step would be 0.5 % shorter without that and without the calls that get new memory.
Not reported: memory that is only requested, as while a program starts or grows; memory freed before the first kernel,
which sets the GPU up; steps that capture a CUDA graph; and whatever happens while code is compiled. Without a GPU, the
rule names lines that call `empty_cache()` in the steps, for information. In a memory snapshot: memory that is handed
back four times or more, at least half of which is requested again before the next time.

Why is this bad?
PyTorch keeps the memory of freed tensors, and the next tensor takes it within a microsecond. `cudaMalloc` and
`cudaFree` take a hundred each, more for large blocks, and `cudaFree` waits until the GPU has finished all its work.
`torch.cuda.empty_cache()` frees everything unused, so that the next step has to request all of it again; it makes room
for other programs, never for this one. Near the limit PyTorch does the same by itself, inside an operator that finds no
room.

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

import numpy as np
from msgspec import Struct

from profkit.derive.device.driver_memory import freeing, getting
from profkit.derive.device.launches import launch_calls
from profkit.derive.steps.boundaries import compiling
from profkit.patterns import Places, in_most_steps, name_lines, per_step, spent_per_step_ns, times_a_step
from profkit.patterns.allocator.flushes import flushes
from profkit.patterns.allocator.lines import site_of
from profkit.patterns.places.calls_between import marks_calling, sites_of_calls
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.savings import remove
from profkit.savings.replay import replay
from profkit.trace import NONE, Bools, Category, Rows, among, distinct

_CALL = "empty_cache"
_FRAME = re.compile(r"torch/.*\.py\(\d+\): empty_cache$")
_UNCERTAINTY = 0.15
"""CUPTI's part in calls that it records."""
_LEAST_TIMES = 4
"""Once or twice may be a change of phase, as from training to an evaluation."""
_LEAST_AGAIN = 0.5


class _Cause(Struct, frozen=True):
    """Who frees, and what to change."""

    who: str
    fix: str


_EMPTIED = _Cause(
    "`empty_cache()` returns",
    "Remove the call: PyTorch reuses the memory of freed tensors without it, and it makes no room for the "
    "program itself. If memory is fragmented, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
)
_SHORT_OF_MEMORY = _Cause(
    "PyTorch's allocator is short of memory, or a library needs some for itself: operators return",
    "Leave the allocator more room: a smaller batch, or inputs padded to a few sizes, so that freed blocks fit "
    "again. Or set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
)
_UNKNOWN = _Cause(
    "Something outside PyTorch's operators returns",
    "Remove `torch.cuda.empty_cache()` from the step and from what it calls. Unset "
    "`PYTORCH_NO_CUDA_MEMORY_CACHING` if the environment has it: it switches PyTorch's cache off.",
)


def _by_snapshot(facts: Facts) -> Suspicions:
    """A snapshot has no times, so the gain is unknown."""
    for one in flushes(facts):
        if one.times < _LEAST_TIMES or one.again_bytes < _LEAST_AGAIN * one.freed_bytes:
            continue
        cause = _EMPTIED if one.by_program else _SHORT_OF_MEMORY
        yield Suspicion(
            message=f"{cause.who} {format_bytes(one.freed_bytes)} of GPU memory to the driver, in "
            f"{format_count(one.times, 'call')}, and {format_bytes(one.again_bytes)} of it is requested again. "
            "The host waits for the GPU each time.",
            fix=cause.fix,
            places=Places.of_sites([site_of(facts, one.frame)]),
            count=one.times,
            confidence=0.8,
            severity=Severity.LOW,
            evidence={"times": one.times, "freed_bytes": one.freed_bytes, "bytes_asked_for_again": one.again_bytes},
        )


@rule(Kind.FAULT, Need.COMPUTE, by_snapshot=_by_snapshot)
def allocator_flush_in_step(facts: Facts) -> Suspicions:
    """On a GPU judge the driver's calls of all steps together; without one look for lines that would lead to them."""
    if not facts.device.present:
        yield from _called_without_gpu(facts)
        return
    if not facts.trace.rows(Category.RUNTIME).size:
        raise CannotLook("the recording does not hold the calls of the GPU's runtime")
    frees = _frees(facts)
    if in_most_steps(facts, frees):
        yield _flushed(facts, frees)


def _flushed(facts: Facts, frees: Rows) -> Suspicion:
    is_one, frames = len(facts.steps) == 1, _frames_around(facts, frees)
    gets = _program_calls(facts, getting(facts.trace))
    if is_one:  # whatever is requested before anything was freed would be requested anyway
        start_ns = facts.trace.events.start_ns
        gets = gets[start_ns[gets] > start_ns[frees].min()]
    sites = sites_of_calls(facts, frees, _CALL)
    sites, gone = distinct(sites[sites != NONE]), np.concatenate([frees, gets, _waits_with(facts, frees), frames])
    inside = facts.calling[frees] >= 0
    cause = _EMPTIED if frames.size or sites.size else _SHORT_OF_MEMORY if inside.mean() > 0.5 else _UNKNOWN
    spent = spent_per_step_ns(facts, facts.measured_rows(facts.tree.outermost(facts.trace.mask_of(gone))))
    edit = remove(gone, uncertainty=_UNCERTAINTY)
    again = f", and requests memory {times_a_step(facts, gets)}" if gets.size else ""
    only = ", in the only recorded step" if is_one else ""
    return Suspicion(
        message=f"{cause.who} GPU memory to the driver {times_a_step(facts, frees)}{only}{again}. That takes "
        f"{format_time(spent)} in all, and the host waits for the GPU each time. Without it the step would be "
        f"{format_share(replay(facts, edit).fraction)} shorter.",
        fix=cause.fix,
        rows=frees,
        edit=edit,
        worth=LOW_FROM,
        confidence=0.6 if is_one else 0.9,
        places=name_lines(facts, sites.tolist()),
        evidence={"frees_per_step": round(per_step(facts, frees), 2), "time_ns_per_step": spent},
    )


def _frees(facts: Facts) -> Rows:
    """The calls that free memory after the first kernel, as CUDA begins with a `cudaFree(0)`, and not in a step that
    captures a graph, which empties the cache first."""
    events = facts.trace.events
    frees = _program_calls(facts, freeing(facts.trace))
    captures = facts.trace.where_name(lambda name: "BeginCapture" in name) & (events.category == Category.RUNTIME)
    begun = events.start_ns[frees] > events.start_ns[launch_calls(facts.trace)].min(initial=np.iinfo(np.int64).max)
    after: Rows = frees[begun & ~among(facts.step_of(frees), facts.step_of(np.flatnonzero(captures)))]
    return after


def _program_calls(facts: Facts, calls: Bools) -> Rows:
    """The program's calls in the measured steps, without those during compilation and in first calls, in which
    libraries set themselves up."""
    events, first = facts.trace.events, facts.trace.mask_of(facts.first_calls)
    aside = facts.tree.under((events.category == Category.PAUSE) | compiling(facts.trace) | first)
    return facts.measured_rows(calls & facts.serial_lanes[events.lane] & ~aside)


def _frames_around(facts: Facts, frees: Rows) -> Rows:
    """The Python frames of `empty_cache`, if they were recorded."""
    frame = facts.tree.nearest_ancestor(facts.tree.outermost(facts.trace.matching(_FRAME)), of=frees)
    return distinct(frame[frame != NONE])


def _waits_with(facts: Facts, frees: Rows) -> Rows:
    """The waits right before a free among a thread's calls of the runtime, in the same operator or both outside of all:
    before it frees, PyTorch waits for what still uses the memory."""
    events = facts.trace.events
    calls = facts.trace.rows(Category.RUNTIME)
    calls = calls[np.lexsort((events.start_ns[calls], events.lane[calls]))]
    before, after = calls[:-1], calls[1:]
    together = (facts.calling[after] == facts.calling[before]) & (events.lane[after] == events.lane[before])
    waits = facts.waits.rows[~facts.waits.own]
    return waits[among(waits, before[among(after, frees) & together])]


def _called_without_gpu(facts: Facts) -> Suspicions:
    marks = marks_calling(facts, _CALL)
    if not facts.steps.located.any():
        raise CannotLook("no GPU was used, and which lines ran was not recorded (run the program under profkit)")
    if marks.size:
        count = len(marks)
        yield Suspicion(
            message=f"`empty_cache()` is called {format_count(count, 'time')} a step. Here, without a GPU, that does "
            "nothing. On a GPU the next step would have to request all its memory from the driver again.",
            fix=_EMPTIED.fix,
            count=count,
            confidence=0.8,
            severity=Severity.INFO,
            places=name_lines(facts, facts.trace.events.site[marks].tolist()),
            evidence={"calls_per_step": count},
        )
