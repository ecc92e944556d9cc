"""Backward passes through one graph, one after the other: reported where none needs another's result."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import Suspicion
from profkit.rules.gradients_one_by_one import gradients_one_by_one
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, step

HEAD = CallSite("pinn.py", 6, "rows", "for one in sums:")
GRAD = CallSite("pinn.py", 7, "rows", "rows.append(torch.autograd.grad(one, x, retain_graph=True)[0])")
FED_BACK = CallSite("pinn.py", 7, "solve", "p = torch.autograd.grad(flat @ p, x, retain_graph=True)[0] + p")
LISTED = CallSite("pinn.py", 7, "rows", "rows = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in sums]")
LIBRARY = CallSite("pinn.py", 7, "rows", "rows = torch.autograd.functional.jacobian(model, x)")
NODE = "autograd::engine::evaluate_function: {}"
ROW, LAYER = "UnbindBackward0", "AddmmBackward0"


def find(facts: Facts) -> list[Suspicion]:
    return list(gradients_one_by_one.check(facts))


def recording(
    passes: int = 8,
    line: CallSite = GRAD,
    *,
    same: bool = True,
    one_mark: bool = False,
    numbered: bool = True,
    root: str = ROW,
) -> Facts:
    """Steps of 200 µs, of which the first is located: a pass of two nodes of 6 µs every 20 µs."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 200.0 * number
        events += [step(number, at, 200), op("aten::addmm", at + 1, 5)]
        if number == 0 and one_mark:
            events.append(mark(1, at + 10, 20 * passes))
        for turn in range(passes):
            start = at + 12 + 20 * turn
            if number == 0 and not one_mark:
                events += [mark(0, start - 1.5, 0.3), mark(1, start - 1, 17)]
            for node in range(2):
                known, name = 10 * number + 1 - node + 100 * turn * (not same), NODE.format(LAYER if node else root)
                events.append(op(name, start + 8 * node, 6, sequence=known if numbered else None))
    return facts_of(events, callsites=(HEAD, line))


def test_rows_of_a_jacobian_are_reported_on_their_line():
    facts = recording()
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.line, found.count) == (7, 8)
    assert found.message.startswith("8 backward passes a step go through the same graph")
    assert found.evidence == {"passes": 8, "nodes_per_pass": 2}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(154 * 7 / 8 / 200, abs=2e-3)


@pytest.mark.parametrize(("passes", "reported"), [(4, True), (3, False)])
def test_from_four_passes_on(passes: int, reported: bool):
    assert bool(find(recording(passes))) is reported


@pytest.mark.parametrize("line", [LISTED, LIBRARY])
def test_a_comprehension_or_a_function_of_the_library_is_one_line(line: CallSite):
    assert len(find(recording(line=line, one_mark=True))) == 1


def test_a_pass_for_each_input_of_one_result_is_another_fault():
    assert find(recording(root=LAYER)) == []


def test_passes_that_go_on_by_the_one_before_are_silent():
    """As conjugate gradients do with products of a Hessian."""
    assert find(recording(line=FED_BACK)) == []


def test_graphs_of_their_own_are_silent():
    assert find(recording(same=False)) == []


def test_nodes_without_numbers_are_silent():
    assert find(recording(numbered=False)) == []
