"""Before and after: can the two sides be compared, is the step longer or shorter, and what moved?

A side is a trace, a run directory, or a directory of several run directories, which then are its samples.

Decisions, and why they were made:

- ``compare`` counts calls if the times leave the verdict open (``counted.py``). Two runs differ by several per cent
  because of the machine, but the number of calls has no noise. Counts confirm a change that the times allow and never
  deny one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profkit.diagnosis.compare.comparison import Comparison, Difference, Side, StepTime, Verdict
from profkit.diagnosis.compare.control import machine_change, pages_change
from profkit.diagnosis.compare.counted import confirm, counted_change
from profkit.diagnosis.compare.moves import finding_moves, line_moves, operator_moves
from profkit.diagnosis.compare.recorded import Recorded, find_recordings, read_recording
from profkit.diagnosis.compare.same_program import refuse_different_programs, refuse_same_recording
from profkit.diagnosis.compare.settings import find_differences, same_settings
from profkit.diagnosis.compare.step_times import compare_step_times
from profkit.diagnosis.compare.trees import moved_tree

_MOST_STEPS = 256
"""Steps of a side that are kept individually."""
UNPROFILED, RECORDED = "unprofiled steps", "recorded steps"


def compare_paths(before: Path, after: Path, force: bool = False) -> Comparison:
    """Compare what was recorded before a change with what was recorded after it.

    Raises `UnreadableInput` for anything without a recording, and `UsageError` for the same recording twice or, without
    ``force``, for recordings of different programs.
    """
    paths = [find_recordings(path) for path in (before, after)]
    refuse_same_recording(*paths)
    one, other = ([read_recording(path) for path in side] for side in paths)
    if not force:
        refuse_different_programs(one[0], other[0])
    return compare(one, other)


def compare(before: Sequence[Recorded], after: Sequence[Recorded]) -> Comparison:
    """The comparison of recordings that have been read, at least one on each side."""
    differences = find_differences(before, after)
    step_time = _step_time(before, after, differences)
    step_ns = max(step_time.before_ns, step_time.after_ns)
    changed = step_time.verdict in (Verdict.BETTER, Verdict.WORSE)
    return Comparison(
        before=_side(before, step_time.before_ns, step_time.steps),
        after=_side(after, step_time.after_ns, step_time.steps),
        differences=differences,
        step_time=step_time,
        operators=operator_moves(before, after, step_ns, changed),
        lines=line_moves(before, after, step_ns, changed),
        findings=finding_moves(before, after),
        tree=moved_tree(before, after),
    )


def _step_time(before: Sequence[Recorded], after: Sequence[Recorded], differences: Sequence[Difference]) -> StepTime:
    """Compare the steps without a profiler if every run has some, otherwise the recorded ones."""
    unprofiled = all(run.unprofiled_ns for run in (*before, *after))
    one, other = ([_times(run, unprofiled) for run in side] for side in (before, after))
    alike = same_settings(differences)
    by_chance = not _took_turns(before, after)
    machine = machine_change(before, after) if alike and by_chance else None
    pages = pages_change(before, after) if unprofiled and by_chance else None
    step_time = compare_step_times(one, other, machine, UNPROFILED if unprofiled else RECORDED, pages)
    step_time = confirm(step_time, counted_change(before, after) if alike else None)
    blocking = next((difference for difference in differences if difference.blocks), None)
    if blocking is None:
        return step_time
    reasons = (f"the steps are not comparable: {blocking.what} differs", *step_time.reasons)
    return replace(step_time, verdict=Verdict.INCONCLUSIVE, low=None, high=None, reasons=reasons)


def _times(run: Recorded, unprofiled: bool) -> tuple[int, ...]:
    return run.unprofiled_ns if unprofiled else run.measured_ns


def _took_turns(before: Sequence[Recorded], after: Sequence[Recorded]) -> bool:
    """Whether the runs of both sides were recorded in turns, so that the machine's load affected both by chance."""
    one, other = ([run.run.started for run in side if run.run.started is not None] for side in (before, after))
    if len(one) < max(len(before), 2) or len(other) < max(len(after), 2):
        return False
    return min(one) < max(other) and min(other) < max(one)


def _side(runs: Sequence[Recorded], step_time_ns: int, steps: str) -> Side:
    summary = runs[0].diagnosis.run
    times = [_times(run, steps == UNPROFILED) for run in runs]
    counts = list(map(len, times))
    kept = tuple(time for one in times for time in one[: _MOST_STEPS // len(runs)])
    paths = tuple(str(run.path) for run in runs)
    calls = sum(sum(work.calls for work in run.operators.values()) for run in runs) / len(runs)
    return Side(paths, summary.command, summary.device, summary.torch, step_time_ns, sum(counts), round(calls, 3), kept)
