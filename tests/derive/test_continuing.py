"""If the line marks end inside a loop, its later turns, and nothing else, get the lines of the earlier ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.core.marks import UNMARKED
from profkit.derive.operators.source_lines import find_lines
from profkit.diagnosis.pipeline import read_facts
from profkit.trace.events import NONE, Category
from tests.traces import annotation, facts_of, mark, op, rows_named, step

RECORDED = Path(__file__).parents[2] / "traces" / "recorded"
Json = dict[str, Any]
LINES = {"aten::embedding": 1, "aten::linear": 2, "aten::relu": 3, "aten::argmax": 4, "aten::zeros": 5}
TURN = ["embedding", "linear", "relu", "linear", "relu", "argmax"]


def located(names: list[str], last_marked: int, number: int = 0, begin: float = 0) -> list[Json]:
    """A step of operators 10 µs apart; the first ``last_marked`` lie in marks of their lines."""
    events = [step(number, begin, 10 * len(names) + 10)]
    for i, name in enumerate(names):
        at = begin + 10 * i + 1
        events += [mark(LINES[f"aten::{name}"], at, 8)] if i < last_marked else []
        events.append(op(f"aten::{name}", at + 1, 5))
    return events


def sites(events: list[Json], name: str) -> list[int]:
    facts = facts_of(events)
    return facts.lines.site[rows_named(facts.trace, f"aten::{name}")].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cut", range(12, 18))
def test_a_loop_that_goes_on_after_the_marks_ended_gets_the_lines_of_its_earlier_turns(cut):
    events = located(["zeros", *TURN * 6], 1 + cut)
    assert [sites(events, name) for name in ("zeros", "embedding", "linear", "relu", "argmax")] == [
        [5],
        [1] * 6,
        [2] * 12,
        [3] * 12,
        [4] * 6,
    ]


def test_the_first_different_operator_ends_the_loop():
    events = located([*TURN * 3, "embedding", "linear", "zeros", *TURN], 18)
    assert sites(events, "embedding") == [1, 1, 1, 1, NONE]
    assert sites(events, "zeros") == [NONE]
    assert sites(events, "linear") == [2] * 7 + [NONE] * 2


LOOP = {"select": 1, "gt": 1, "mul": 2, "add": 3}
"""Each turn compares an element, and only some multiply it or add it up."""


def branching(turns: list[list[str]], last_marked: int) -> list[int]:
    """The line of each operator."""
    names = [name for turn in turns for name in ["select", "gt", *turn]]
    events = [step(0, 0, 10 * len(names) + 10)]
    for i, name in enumerate(names):
        events += [mark(LOOP[name], 10 * i + 1, 8)] if i < last_marked else []
        events.append(op(f"aten::{name}", 10 * i + 2, 5))
    facts = facts_of(events)
    rows = np.flatnonzero(facts.trace.events.category == Category.OPERATOR)
    return [int(site) for site in facts.lines.site[rows]]


def test_a_loop_whose_branches_depend_on_the_data_goes_on_as_long_as_each_was_seen_after_each():
    both, one, none = ["mul", "add"], ["mul"], []
    seen = [both, one, none, both, both, none, none, one, one, both, none, one, none, both, one, both]
    lines = branching([*seen, none, one, both, both, none, both, one], sum(2 + len(turn) for turn in seen))
    assert NONE not in lines


def test_a_branch_that_was_never_seen_ends_the_loop():
    lines = branching([["mul"]] * 4 + [["mul", "add"]] + [["mul"]] * 4, 12)
    assert lines == [1, 1, 2] * 5 + [NONE] * 13


def test_what_follows_tells_lines_apart_that_come_after_the_same_operators():
    """`if x[i] > 0:` is followed by `x[i] * 2` or by the next turn's `if x[i] > 0:`."""
    lines = {"gt": 1, "mul": 2}
    turns = [["select", "gt", "select", "mul"], ["select", "gt"]]
    names = [name for number in (0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0) for name in turns[number]]
    sites_of = [lines[names[i + 1]] if name == "select" else lines[name] for i, name in enumerate(names)]
    events = [step(0, 0, 10 * len(names) + 10)]
    for i, (name, site) in enumerate(zip(names, sites_of, strict=True)):
        events += [mark(site, 10 * i + 1, 8)] if i < 30 else []
        events.append(op(f"aten::{name}", 10 * i + 2, 5))
    facts = facts_of(events)
    rows = np.flatnonzero(facts.trace.events.category == Category.OPERATOR)
    assert facts.lines.site[rows].tolist()[:-2] == sites_of[:-2]


def calling(names: list[str], last_marked: int, after: str, *, is_unmarked: bool = True) -> list[Json]:
    """Line 7 calls a function whose lines are no longer marked after some operators, and runs one itself at the end."""
    events = [step(0, 0, 10 * len(names) + 30), mark(7, 1, 10 * len(names) + 20)]
    for i, name in enumerate(names):
        at = 10 * i + 2
        events += [mark(LINES[f"aten::{name}"], at, 8)] if i < last_marked else []
        events.append(op(f"aten::{name}", at + 1, 5))
    events += [annotation(UNMARKED, 10 * last_marked + 0.5, 0.1)] if is_unmarked else []
    return [*events, op(f"aten::{after}", 10 * len(names) + 5, 5)]


def test_a_function_that_is_marked_no_further_keeps_its_own_lines():
    events = calling(TURN * 6, 15, "zeros")
    assert sites(events, "embedding") == [1] * 6
    assert sites(events, "argmax") == [4] * 6
    assert sites(events, "zeros") == [7]


def test_what_the_calling_line_runs_itself_keeps_that_line_unless_marks_are_missing():
    assert sites(calling(TURN * 3, 15, "embedding", is_unmarked=False), "argmax") == [4, 4, 7]


def test_one_turn_alone_gives_no_lines_to_the_next():
    assert sites(located(TURN * 4, 6), "embedding") == [1, NONE, NONE, NONE]


def test_layers_inside_a_turn_are_not_taken_for_the_loop():
    """The marks end after the first of four layers, and the turn ends after the fourth."""
    turn = ["embedding", *["linear", "relu"] * 4, "argmax"]
    assert sites(located(turn * 5, 33), "argmax") == [4] * 5


def test_a_nested_operator_of_the_same_name_counts_as_different():
    events = located(["zeros", *TURN * 4], 13)
    assert sites(events, "embedding") == [1] * 4
    around = op("aten::argmax", 10 * 14 + 1.5, 7)
    assert sites([*events, around], "embedding") == [1, 1, 1, NONE]


def test_measured_steps_also_get_the_lines_taken_from_earlier_turns():
    measured = located(TURN * 4, 0, number=1, begin=1_000)
    assert sites([*located(TURN * 4, 12), *measured], "embedding") == [1] * 8


def test_each_thread_is_continued_separately():
    other = [op("aten::embedding", 10 * i + 2, 5, tid=9) for i in range(18)]
    events = [*located(TURN * 3, 12), *other]
    facts = facts_of(events)
    rows = rows_named(facts.trace, "aten::embedding")
    mine = facts.trace.events.lane[rows] == facts.steps.main_lane
    site = facts.lines.site[rows]
    assert site[mine].tolist() == [1] * 3
    assert set(site[~mine].tolist()) == {NONE}


def test_marks_that_last_to_the_end_of_the_step_need_no_continuing():
    assert sites(located(["zeros", *TURN * 2, "zeros"], 14), "zeros") == [5, 5]


def test_in_recordings_without_their_later_marks_no_wrong_line_is_given():
    checked = 0
    for directory in sorted({path.parent for path in RECORDED.rglob("*.pt.trace.json*")}):
        facts = read_facts(directory)
        events = facts.trace.events
        marks = np.flatnonzero(events.category == Category.LINE_MARK)
        if not marks.size:
            continue
        cut = np.sort(events.start_ns[marks])[len(marks) // 2]
        category = events.category.copy()
        category[marks[(events.start_ns + events.duration_ns)[marks] > cut]] = Category.ANNOTATION
        trace = replace(facts.trace, events=replace(events, category=category))
        site = find_lines(trace, facts.tree, facts.steps, facts.repeats).site
        behind = (events.category == Category.OPERATOR) & (events.start_ns >= cut) & (site >= 0)
        behind &= facts.steps.located[facts.steps.index_of(events.start_ns)]
        checked += int(behind.sum())
        assert (site == facts.lines.site)[behind].all(), directory
    assert checked > 0
