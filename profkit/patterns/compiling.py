"""When PyTorch's compiler worked during the recording, and where its code ran."""

from __future__ import annotations

import re

import numpy as np

from profkit.core.units import format_count, format_time
from profkit.derive.facts import Facts, derived_once
from profkit.derive.steps.boundaries import compiling
from profkit.trace.events import NONE, Int64s, Rows
from profkit.trace.statistics import constant, distinct

COMPILED_REGION = "Torch-Compiled Region"
"""Prefix of the events around each run of a compiled function (``_dynamo/output_graph.py``)."""
_REGION = re.compile(rf"{COMPILED_REGION}: (\d{{1,9}})/\d{{1,9}}")
RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_(\d{1,9})$")
"""The compiler's name for the rest of a function after the line at which it stopped, which it treats as a function of
its own (``torch/_dynamo/resume_execution.py``)."""
_COMPILE_ID = re.compile(r".*\bcompile_id=(?:!\d+/)?(\d{1,9})/\d{1,9}")
"""What the compiler notes beside the events of its work, from PyTorch 2.8 on."""


@derived_once
def frame_of_regions(facts: Facts) -> Int64s:
    """For each event that runs a compiled function the compiler's number of that function, else `NONE`."""
    number, code = _numbers_in_names(facts, COMPILED_REGION, _REGION), facts.trace.events.name_code
    return number[code] if (number >= 0).any() else constant(NONE, np.int64, len(code))


def _numbers_in_names(facts: Facts, part: str, pattern: re.Pattern[str]) -> Int64s:
    """For each name of the trace the number that the pattern finds in it, else `NONE`. Names without ``part`` have
    none."""
    names = facts.trace.names
    number = np.full(len(names), NONE, dtype=np.int64)
    for code in facts.trace.codes_where(lambda name: part in name):
        if match := pattern.match(names[code]):
            number[code] = int(match[1])
    return number


def has_compiler_events(facts: Facts) -> bool:
    """Whether compiled code ran in the recording."""
    return bool((frame_of_regions(facts) >= 0).any())


@derived_once
def compilations(facts: Facts) -> tuple[Rows, Int64s]:
    """The compiler's outermost pieces of work, each with the compiler's number of the function: that of the note before
    it, or `NONE`."""
    events = facts.trace.events
    rows = np.flatnonzero(facts.tree.outermost(compiling(facts.trace)))
    number = _numbers_in_names(facts, "compile_id=", _COMPILE_ID)
    frame = np.full(len(rows), NONE, dtype=np.int64)
    for lane in distinct(events.lane[rows]):
        notes = np.flatnonzero((number[events.name_code] >= 0) & (events.lane == lane))
        here = np.flatnonzero(events.lane[rows] == lane)
        before = np.searchsorted(events.start_ns[notes], events.start_ns[rows[here]]) - 1
        known = before >= 0
        frame[here[known]] = number[events.name_code[notes[before[known]]]]
    return rows, frame


def function_run_next(facts: Facts, rows: Rows) -> Int64s:
    """For each piece of the compiler's work the number of the function that its thread runs next in the same step,
    which is the one that was compiled; `NONE` if it runs none."""
    events, number = facts.trace.events, frame_of_regions(facts)
    found = np.full(len(rows), NONE, dtype=np.int64)
    for lane in distinct(events.lane[rows]):
        regions = np.flatnonzero((number >= 0) & (events.lane == lane))
        here = np.flatnonzero(events.lane[rows] == lane)
        after = np.searchsorted(events.start_ns[regions], facts.tree.end_ns[rows[here]])
        known = after < len(regions)
        here, following = here[known], regions[after[known]]
        same = facts.step_of(following) == facts.step_of(rows[here])
        found[here[same]] = number[following[same]]
    return found


def describe_left_out(facts: Facts) -> str | None:
    """The sentence about steps that are not measured because something was compiled in them."""
    rows, steps = compilations(facts)[0], facts.steps
    index = facts.step_of(rows)
    left_out = (index >= 0) & ~(steps.measured | steps.located)[index]
    count = len(distinct(index[left_out]))
    if not count:
        return None
    spent = int(facts.trace.events.duration_ns[rows[left_out]].sum())
    return (
        f"PyTorch compiled for {format_time(spent)} in {format_count(count, 'recorded step')}: left out of the "
        "measured ones, as most compile nothing"
    )
