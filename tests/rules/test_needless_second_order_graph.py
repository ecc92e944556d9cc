"""Backward passes with a graph of their own: one that a later pass runs, and one that none does."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.needless_second_order_graph import needless_second_order_graph
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
LOSS = CallSite("train.py", 8, "main", "loss = model(x).mean()")
FLAG = CallSite("train.py", 9, "main", "grads = torch.autograd.grad(loss, weights, create_graph=True)")
PLAIN = CallSite("train.py", 9, "main", "grads = torch.autograd.grad(loss, weights)")
OPEN = CallSite("train.py", 9, "main", "grads = torch.autograd.grad(")
OTHER = CallSite("train.py", 9, "main", "grads = jacobian(")
NODE = "autograd::engine::evaluate_function: MulBackward0"
EACH = 12


def find(facts: Facts) -> list[Suspicion]:
    return list(needless_second_order_graph.check(facts))


def passes(numbered: bool = True, ran: int | None = None, again: bool = False, count: int = 4) -> list[Json]:
    """A step of 500 µs makes a node, and `EACH` more in the backward pass at line 9, of 10 µs each. ``ran`` is the one
    of these that a later pass of the step runs, ``again`` whether one runs the forward pass's node again."""
    events = []
    for i in range(count):
        at, first = 500 * i, 100 * i
        marks = [mark(0, at + 1, 9), mark(1, at + 19, 211), mark(2, at + 239, 261)] if i == 0 else []
        events += [step(i, at, 500), *marks, op("aten::mul", at + 2, 2, sequence=first)]
        events.append(op(NODE, at + 20, 200, sequence=first))
        events += [
            op("aten::mul", at + 25 + 15 * n, 10, sequence=first + 1 + n if numbered else None) for n in range(EACH)
        ]
        events.append(op("aten::add", at + 240, 2, sequence=first + 1 + EACH * numbered))
        if ran is not None:
            events.append(op(NODE, at + 260, 9, sequence=first + 1 + ran))
        if again:
            events.append(op(NODE, at + 280, 9, sequence=first))
    return events


def recorded(events: list[Json], line: CallSite = FLAG) -> Facts:
    return facts_of(events, callsites=(LOSS, line, CallSite("train.py", 10, "main", "update(grads)")))


def test_nodes_that_no_pass_runs_cost_a_cheap_operator_each():
    """Twelve nodes at 2 µs each, the time of the cheapest operator, of a step of 500 µs."""
    facts = recorded(passes())
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.file, found.location.line, found.count) == ("train.py", 9, EACH)
    assert found.fix.startswith("Leave out `create_graph=True`. If steps that were not recorded differentiate")
    assert "In the recorded steps no later pass runs them" in found.message
    assert predict_saving(facts, found.edit).fraction == pytest.approx(24 / 500, rel=0.2)


def test_a_forward_pass_that_is_walked_again_keeps_its_graph():
    (found,) = find(recorded(passes(again=True)))
    assert "retain_graph=True" in found.fix


@pytest.mark.parametrize(
    "events", [passes(ran=0), passes(ran=EACH - 1), passes(numbered=False)], ids=["first", "last", "no graph"]
)
def test_a_graph_that_is_run_and_a_pass_without_one_are_silent(events):
    assert find(recorded(events)) == []


@pytest.mark.parametrize(("line", "reported"), [(FLAG, 1), (OPEN, 1), (PLAIN, 0), (OTHER, 0)])
def test_the_line_asks_for_the_graph(line, reported):
    """What `torch.func` does inside is not for the program to change."""
    assert len(find(recorded(passes(), line))) == reported


def test_one_step_does_not_tell():
    """The pass that needs the graph may come in the next one."""
    assert find(recorded(passes(count=1))) == []


def test_without_lines_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::mul", 10, 40, sequence=1)])
    assert Need.LINES in missing_needs(facts, needless_second_order_graph.needs)
