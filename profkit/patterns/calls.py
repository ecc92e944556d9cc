"""Calls of operators, and how messages count what a step does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from profkit.core.units import format_count, pick_form
from profkit.derive.facts import Facts
from profkit.derive.families import operators_of
from profkit.derive.operators.operators import parse_dims, parse_types
from profkit.derive.steps.boundaries import ONGOING_LOOP
from profkit.patterns.frequency import times_per_step
from profkit.patterns.program import spent_ns
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct_rows

_FEW = {1: "once", 2: "twice"}


class Call(Struct, frozen=True):
    """An operator with the texts that the profiler wrote of its inputs: their shapes, types and plain values."""

    row: int
    name: str
    dims: str
    of_types: str
    values: str

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return parse_dims(self.dims)

    @property
    def types(self) -> Sequence[str]:
        return parse_types(self.of_types)

    @property
    def arguments(self) -> Sequence[str]:
        return parse_types(self.values)

    def argument(self, number: int) -> str:
        """The value of one argument; empty if none was recorded."""
        return next(iter(self.arguments[number : number + 1]), "")


def call_of(facts: Facts, row: int) -> Call:
    events, trace = facts.trace.events, facts.trace
    texts = (events.dims_code, events.types_code, events.concrete_code)
    return Call(row, trace.name_of(row), *(trace.text_of(int(codes[row])) for codes in texts))


def run_in_training(facts: Facts, rows: Rows, names: frozenset[str], argument: int) -> bool:
    """Whether one of these operators has one of the names and is in training mode, as this argument says."""
    return any(
        call_of(facts, row).argument(argument) in ("", "True")
        for row in rows[operators_of(facts.trace, names)[rows]].tolist()
    )


def distinct_calls(facts: Facts, rows: Rows, *also: NDArray) -> tuple[list[Call], Rows]:  # type: ignore[type-arg]
    """The distinct calls among the operators, told apart by ``also`` too, and for each row the number of its call."""
    trace, events = facts.trace, facts.trace.events
    columns = (events.name_code, events.dims_code, events.types_code, events.concrete_code)
    first, number = distinct_rows(*(codes[rows] for codes in columns), *also)
    one_each = rows[first]
    names, *codes = (column[one_each].tolist() for column in columns)
    told = (names, *(map(trace.text_of, column) for column in codes))
    calls = [Call(row, trace.names[name], *texts) for row, name, *texts in zip(one_each.tolist(), *told, strict=True)]
    return calls, number


def by_call(facts: Facts, rows: Rows, tell: Callable[[Call], Any], of: type = bool) -> NDArray[Any]:
    """For each operator what ``tell`` says of its call. It is asked once per distinct call."""
    calls, number = distinct_calls(facts, rows)
    return np.array([tell(call) for call in calls], dtype=of)[number]


def spent_per_step_ns(facts: Facts, rows: Rows) -> int:
    """How long the host events take in a step, without what the recording added."""
    return facts.steps.per_step_ns(int(spent_ns(facts, rows).sum()))


def each_step(count: int, noun: str, verb: str, verbs: str) -> str:
    """``(2, 'layer', 'adds', 'add')`` → ``'2 layers a step add'``."""
    return f"{format_count(count, noun)} a step {pick_form(count, verb, verbs)}"


def times_a_step(facts: Facts, rows: Rows) -> str:
    """``'3 times a step'``, ``'once a step'``: how often the rows come."""
    return f"{times_of(times_per_step(facts, rows))} a step"


def in_a_step(facts: Facts) -> str:
    """``'a step'``, or what was recorded of one, if that is all that was."""
    is_whole = not facts.is_part and facts.steps.source != ONGOING_LOOP
    return "a step" if is_whole else "in what was recorded of the step"


def times_of(count: int) -> str:
    """``'once'``, ``'3 times'``."""
    return _FEW.get(count) or format_count(count, "time")
