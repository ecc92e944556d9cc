"""The loop over parameters in a program's own optimizer: its lines, and whether its updates resemble Adam's.

A located step shows the lines inside the optimizer's step, and how often each runs.
"""

from __future__ import annotations

import ast
from collections import Counter

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.patterns.loops.located import in_located_step, located_marks
from profkit.run.directory import CallSite
from profkit.source.syntax import parse_line
from profkit.trace.events import Bools, Float64s, Rows

_SQUARES, _QUOTIENTS = ("addcmul", "square", "pow"), ("addcdiv", "div")


def rounds_of_lines(facts: Facts, steps: Rows) -> Float64s:
    """How often each call site runs in one of the optimizer's ``steps``."""
    events = facts.trace.events
    named = facts.optimizing & (events.name_code == events.name_code[steps[0]])
    calls = in_located_step(facts, np.flatnonzero(named))
    marks = located_marks(facts)
    marks = marks[facts.tree.under(facts.trace.mask_of(calls))[marks]]
    return np.bincount(events.site[marks], minlength=len(facts.callsites)) / max(len(calls), 1)


def in_own_loop(facts: Facts, operators: Rows, site: int, rounds: Float64s, parameters: float) -> Bools:
    """Which operators of steps called at the line ``site`` are on a line of the program that runs once per parameter. A
    library's optimizer has a line only for the call. A line that calls the step of another optimizer, or of its base
    class, runs once and has all the operators."""
    found = facts.lines.site[operators]
    inside: Bools = (found >= 0) & (found < len(rounds)) & (found != site)  # numbers from a file may be anything
    if inside.any():
        inside[inside] = rounds[found[inside]] >= max(2.0, parameters / 2)
    return inside


def loop_head(facts: Facts, rounds: Float64s, parameters: float) -> CallSite | None:
    """The line that runs once per parameter, plus once to end the loop, if it reads like the head of one."""
    often = [i for i in range(len(facts.callsites)) if rounds[i] >= parameters]
    heads = [i for i in often if isinstance(parse_line(facts.callsites[i].source), (ast.For, ast.While))]
    nearest = min(heads, key=lambda i: float(rounds[i]), default=None)
    return None if nearest is None or rounds[nearest] > 2 * parameters else facts.callsites[nearest]


def resembles_adam(facts: Facts, operators: Rows, updates: float) -> bool:
    """Whether each update decays two averages, one of them of squares, and divides the other by its root (Kingma and
    Ba, 2015, algorithm 1)."""
    codes, counts = np.unique(facts.trace.events.name_code[operators], return_counts=True)
    each: Counter[str] = Counter()
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        each[base_name(facts.trace.names[code])] += count / updates
    decays = each["mul"] + each["lerp"]
    return decays >= 2 and each["sqrt"] >= 1 and any(each[n] for n in _SQUARES) and any(each[n] for n in _QUOTIENTS)
