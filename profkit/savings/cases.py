"""Recorded calls of operators as cases of an experiment: one for each operator and shape, the costliest first."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.derive.operators.operators import parse_dims, parse_types
from profkit.run.experiment import RUNNABLE, RUNNABLE_ON_IMAGES, Case
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct_rows

_MOST_CASES = 6
"""Each takes a fraction of a second to measure."""
_MIN_COVERED = 0.5
"""The share of the operators' time that the cases must cover: the rest is assumed to behave like them."""
_DTYPES = {"double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}


def dtype_of(facts: Facts, row: int) -> str:
    """The type of an operator's first floating-point tensor, ``float32`` if none is known."""
    kinds = parse_types(facts.trace.text_of(facts.trace.events.types_code[row]))
    return next((_DTYPES[kind] for kind in kinds if kind in _DTYPES), "float32")


def case_of(facts: Facts, row: int, dtype: str = "", calls: float = 1.0) -> Case | None:
    """The call of one operator; None if no experiment can make it."""
    events, trace = facts.trace.events, facts.trace
    name = base_name(trace.name_of(row))
    shapes = tuple(tuple(shape) for shape in parse_dims(trace.text_of(events.dims_code[row])) if shape)
    if name not in RUNNABLE | RUNNABLE_ON_IMAGES or not shapes:
        return None
    arguments = tuple(parse_types(trace.text_of(events.concrete_code[row])))
    return Case(name, shapes, dtype or dtype_of(facts, row), calls, arguments)


def cases_of(facts: Facts, rows: Rows, dtype: str = "") -> tuple[Case, ...]:
    """The costliest kinds of calls among these operators; none if those that can be run do not take most of the
    time."""
    events = facts.trace.events
    first, inverse = distinct_rows(events.name_code[rows], events.dims_code[rows], events.types_code[rows])
    cost = np.bincount(inverse, weights=events.duration_ns[rows], minlength=len(first))
    count = np.bincount(inverse, minlength=len(first)) / max(facts.steps.measured_count, 1)
    # On a GPU the host's time of an operator says nothing about what it computes.
    recorded_ns = cost * 0 if facts.device.present else cost / max(facts.steps.measured_count, 1)
    cases: list[Case] = []
    covered = 0.0
    for i in np.argsort(-cost, kind="stable"):
        case = case_of(facts, int(rows[first[i]]), dtype, float(count[i]))
        if case is not None and len(cases) < _MOST_CASES:
            cases.append(replace(case, recorded_ns=float(recorded_ns[i])))
            covered += float(cost[i])
    return tuple(cases) if covered >= _MIN_COVERED * max(float(cost.sum()), 1.0) else ()
