"""Gradients of one result by several inputs, each by a pass of its own, and passes that differ."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.repeated_backward_pass import repeated_backward_pass
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
STEP = 400
BY_X = "u_x = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]"
BY_T = "u_t = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), create_graph=True)[0]"


def node(name: str, at: float, duration: float, sequence: int) -> Json:
    return op(f"autograd::engine::evaluate_function: {name}", at, duration, sequence=sequence)


def a_pass(at: float, *sequences: int, name: str = "TanhBackward0") -> list[Json]:
    """Nodes of 10 µs, one every 12."""
    return [node(name, at + 12 * i, 10, sequence) for i, sequence in enumerate(sequences)]


def facts_with(
    *passes: list[Json],
    lines: tuple[str, ...] = (BY_X, BY_T),
    begins: tuple[float, ...] = (50, 100),
    file: str = "pinn.py",
):
    """Four steps of 400 µs, the first of which has marks: the two lines run from 50 and from 100 µs on, for 50."""
    events = [step(0, 0, STEP)]
    events += [mark(number, at, 50) for number, at in enumerate(begins)]
    for i in range(4):
        events += [step(i, STEP * i, STEP)] if i else []
        events += [op("aten::linear", STEP * i + 5, 20, sequence=10), op("aten::tanh", STEP * i + 30, 10, sequence=11)]
        events += [{**event, "ts": event["ts"] + STEP * i} for one in passes for event in one]
    sites = tuple(CallSite(file, 7 + number, "residual", line) for number, line in enumerate(lines))
    return facts_of(events, callsites=sites)


def find(facts) -> list[Suspicion]:
    return list(repeated_backward_pass.check(facts))


def test_the_second_pass_goes_with_what_lies_between_its_nodes():
    facts = facts_with(a_pass(52, 11, 10), a_pass(102, 11, 10))
    (found,) = find(facts)
    assert found.message.startswith("2 backward passes begin at the same result")
    assert found.count == 1
    assert found.evidence == {"passes": 2, "nodes_per_step": 2}
    assert [place.line for place in found.places.all()] == [8, 7]
    assert predict_saving(facts, found.edit).time_ns_per_step == 22_000


def test_what_the_loss_goes_through_because_of_it_goes_too():
    recorded = op("aten::mul", 103, 4, sequence=12)
    loss = node("MulBackward0", 200, 30, 12)
    facts = facts_with(a_pass(52, 11, 10), [*a_pass(102, 11, 10), recorded], [loss])
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == 52_000


def test_a_derivative_of_the_derivative_stays():
    recorded = op("aten::mul", 103, 4, sequence=12)
    second = a_pass(160, 12)
    lines = (BY_X, BY_T, "u_tt = torch.autograd.grad(u_t, t, torch.ones_like(u_t))[0]")
    facts = facts_with(a_pass(52, 11, 10), [*a_pass(102, 11, 10), recorded], second, lines=lines, begins=(50, 100, 155))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == 22_000


def test_a_helper_calls_it_three_times_on_one_line():
    (found,) = find(facts_with(a_pass(52, 11), a_pass(64, 11), a_pass(76, 11), lines=(BY_X,), begins=(50,)))
    assert (found.count, found.evidence["passes"]) == (2, 3)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            ("a = torch.autograd.grad(u.sum(), x)[0]", "b = torch.autograd.grad(u.sum(), t)[0]"), id="of a sum"
        ),
        pytest.param(("a = grad(u, x, [torch.ones_like(u)])[0]", "b = grad([u], t, None)[0]"), id="in lists"),
    ],
)
def test_weights_of_one_are_written_in_many_ways(lines):
    adds_up = [[node("SumBackward0", at, 10, number)] for at, number in ((52, 20), (102, 21))]
    facts = facts_with(adds_up[0] + a_pass(64, 11, 10), adds_up[1] + a_pass(114, 11, 10), lines=lines)
    assert len(find(facts)) == 1


@pytest.mark.parametrize(
    ("passes", "lines"),
    [
        pytest.param(
            (a_pass(52, 11, 10), a_pass(102, 11, 10)),
            ("a = torch.autograd.grad(u, x, v, retain_graph=True)[0]", "b = torch.autograd.grad(u, x, w)[0]"),
            id="weights that may differ",
        ),
        pytest.param(
            (a_pass(52, 11, 10), a_pass(102, 11, 10)),
            ("loss.backward(retain_graph=True)", "loss.backward()"),
            id="gradients that are added up",
        ),
        pytest.param((a_pass(52, 11, 10), a_pass(102, 13, 10)), (BY_X, BY_T), id="another result of the same trunk"),
        pytest.param((a_pass(52, 11, 10), a_pass(102, 21, 20)), (BY_X, BY_T), id="another graph"),
        pytest.param((a_pass(52, 11, 10),), (BY_X, BY_T), id="one pass"),
        pytest.param(
            (a_pass(52, 11, 10, name="UnbindBackward0"), a_pass(102, 11, 10, name="UnbindBackward0")),
            (BY_X, BY_T),
            id="rows of one unbound tensor",
        ),
        pytest.param(
            (a_pass(52, 11, 10, name="OwnFunctionBackward"), a_pass(102, 11, 10, name="OwnFunctionBackward")),
            (BY_X, BY_T),
            id="a function of the program, which may have several results",
        ),
    ],
)
def test_passes_that_differ_are_silent(passes, lines):
    assert find(facts_with(*passes, lines=lines)) == []


def test_without_lines_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), *a_pass(10, 11, 10), *a_pass(50, 11, 10)])
    assert Need.LINES in missing_needs(facts, repeated_backward_pass.needs)


NAMED = tuple(f"u_{one} = torch.autograd.grad(u, {one}, ones, create_graph=True)[0]" for one in "xt")


@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ("ones = torch.ones_like(u)", "return u_x + u_t", True),
        ("ones: Tensor = torch.ones_like(u)", "return u_x + u_t", True),
        ("ones = weights", "return u_x + u_t", False),
        ("ones = torch.ones_like(u)", "ones = u_x", False),
        ("ones = torch.ones_like(u)", "ones *= 2", False),
        ("pass", "return u_x + u_t", False),  # the module's, or an argument
    ],
)
def test_weights_that_the_function_names_are_ones_if_it_sets_them_once(tmp_path, before, after, is_found):
    rows = ["ones = 3", "", "", "", "def residual(model, x, t):", f"    {before}", *(f"    {one}" for one in NAMED)]
    (tmp_path / "pinn.py").write_text("\n".join([*rows, f"    {after}", ""]))
    passes = a_pass(52, 11, 10), a_pass(102, 11, 10)
    facts = facts_with(*passes, lines=NAMED, file=str(tmp_path / "pinn.py"))
    assert bool(find(facts)) is is_found
