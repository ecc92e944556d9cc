"""Lines that run once per parameter in an optimizer of the program's own."""

from __future__ import annotations

import numpy as np

from profkit.patterns.loops.own_optimizers import in_own_loop
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, op, rows_named, step

SITES = (CallSite("train.py", 9, "main", "optimizer.step()"), CallSite("sgd.py", 4, "step", "p.add_(p.grad)"))


def test_an_operator_on_a_line_that_runs_once_per_parameter_is_in_the_loop():
    events = [step(0, 0, 100), mark(0, 5, 60), mark(1, 10, 20), op("aten::add_", 12, 5), op("aten::mul_", 40, 5)]
    facts = facts_of([*events, step(1, 100, 100)], callsites=SITES)
    rows = np.array(rows_named(facts.trace, "aten::add_", "aten::mul_"), dtype=np.int64)
    assert in_own_loop(facts, rows, 0, np.array([1.0, 8.0]), 8).tolist() == [True, False]
    assert in_own_loop(facts, rows, 0, np.array([1.0, 1.0]), 8).tolist() == [False, False]


def test_the_number_of_a_line_that_the_list_of_lines_lacks_is_in_no_loop():
    """As in a damaged recording."""
    facts = facts_of([step(0, 0, 100), mark(7, 10, 20), op("aten::add_", 12, 5), step(1, 100, 100)])
    rows = np.array(rows_named(facts.trace, "aten::add_"), dtype=np.int64)
    assert in_own_loop(facts, rows, 0, np.zeros(0), 8).tolist() == [False]
