"""Loops over lists of tensors whose rounds need nothing of each other, and loops that look like them."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.tensor_list_loop import tensor_list_loop
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.rules.located_loops import looped
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
LENGTH = 4000
"""Of a step, in microseconds."""
LOOP = "for log_prob, R in zip(log_probs, returns):"
LOSS = "losses.append((-log_prob * R).square())"


def find(facts) -> list[Suspicion]:
    return list(tensor_list_loop.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(name, at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def computing(at: float, _: int) -> list[Json]:
    """Three operators of 2 µs each, with 3 µs of Python between them."""
    return [tensor_op(f"aten::{name}", at + 5 * i, 2, [1]) for i, name in enumerate(("neg", "mul", "square"))]


def recording(lines: tuple[str, ...] = (LOOP, LOSS), body=computing, **more: Any):
    """The last line of the loop calls the operators, from a function where there are four lines."""
    sites = tuple(CallSite("agent.py", 6 + i, "finish", line) for i, line in enumerate(lines))
    return looped(sites, body, LENGTH, **more)


def test_a_loop_of_independent_rounds_takes_the_time_of_one():
    facts = recording()
    (found,) = find(facts)
    assert found.evidence == {"rounds_per_step": 40, "operators_per_step": 120}
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (6, [7])
    lasted = 39 * 20 + 12
    assert predict_saving(facts, found.edit).fraction == pytest.approx((lasted - 3 * 2) / LENGTH, abs=1e-4)


def test_what_python_works_between_the_operators_stays():
    facts = recording(every=60)
    (found,) = find(facts)
    lasted, works = 39 * 60 + 12, 39 * (60 - 12 - 10)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((lasted - works - 3 * 2) / LENGTH, abs=1e-4)


@pytest.mark.parametrize(("pause", "gone"), [(5, 5), (10, 10), (11, 0)])
def test_the_backward_pass_is_called_once_too(pause, gone):
    """With the time that autograd takes from node to node; a longer pause is other work."""

    def with_backward(at: float, k: int) -> list[Json]:
        negated, *others = computing(at, k)
        negated["args"]["Sequence number"] = int(at)
        return [negated, *others]

    nodes = [
        op(
            "autograd::engine::evaluate_function: NegBackward0",
            LENGTH * i + 2000 + (5 + pause) * k,
            5,
            sequence=LENGTH * i + 12 + 20 * k,
        )
        for i in range(4)
        for k in range(40)
    ]
    sites = (CallSite("agent.py", 6, "finish", LOOP), CallSite("agent.py", 7, "finish", LOSS))
    events = [step(i, LENGTH * i, LENGTH) for i in range(4)]
    for i in range(4):
        for k in range(40):
            at = LENGTH * i + 10 + 20 * k
            events += [mark(0, at, 0.5), mark(1, at + 1, 16)] if i == 0 else []
            events += with_backward(at + 2, k)
    facts = facts_of([*events, *nodes], callsites=sites)
    (found,) = find(facts)
    forward, backward = 39 * 20 + 12 - 3 * 2, (40 * 5 + 39 * gone) * (1 - 1 / 40)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((forward + backward) / LENGTH, abs=1e-3)


@pytest.mark.parametrize(("rounds", "reported"), [(32, 1), (31, 0)])
def test_thirty_two_rounds_are_the_least(rounds, reported):
    assert len(find(recording(rounds=rounds))) == reported


def test_a_round_of_one_operator_needs_sixty_four_rounds():
    def negating(at: float, _: int) -> list[Json]:
        return [tensor_op("aten::neg", at, 2, [1])]

    assert find(recording(rounds=63, body=negating)) == []
    assert len(find(recording(rounds=64, body=negating))) == 1


@pytest.mark.parametrize("line", ["h = (a * h + x).square()", "x.mul_(0.9).add_(y)", "obs.append(env.step(-a * b))"])
def test_rounds_that_may_need_one_another_are_silent(line):
    assert len(find(recording(lines=(LOOP, LOSS)))) == 1
    assert find(recording(lines=(LOOP, line))) == []


@pytest.mark.parametrize(
    "name", ["linear", "mm", "conv2d", "lstm_cell", "linalg_cholesky", "randn", "dropout", "mul_", "copy_"]
)
def test_layers_random_numbers_and_writes_to_tensors_are_silent(name):
    def with_another(at: float, k: int) -> list[Json]:
        return [*computing(at, k), tensor_op(f"aten::{name}", at + 13, 2, [1])]

    assert find(recording(body=with_another)) == []


def test_what_is_no_operator_of_pytorch_is_silent():
    def with_another(at: float, k: int) -> list[Json]:
        return [*computing(at, k), tensor_op("mylib::fused_loss", at + 13, 2, [1])]

    assert find(recording(body=with_another)) == []


@pytest.mark.parametrize(("elements", "reported"), [(4096, 1), (4097, 0)])
def test_rounds_on_larger_tensors_are_silent(elements, reported):
    def on(at: float, _: int) -> list[Json]:
        return [tensor_op(f"aten::{name}", at + 5 * i, 2, [elements]) for i, name in enumerate(("neg", "mul"))]

    assert len(find(recording(body=on))) == reported


def test_rounds_of_different_shapes_are_silent():
    def growing(at: float, k: int) -> list[Json]:
        return [tensor_op("aten::neg", at, 2, [1 + k % 2]), tensor_op("aten::mul", at + 5, 2, [1 + k % 2])]

    assert find(recording(body=growing)) == []


def test_the_first_round_may_add_to_a_number():
    def adding(at: float, k: int) -> list[Json]:
        total: list[int] = [] if k == 0 else [1]
        return [tensor_op("aten::mul", at, 2, [1]), tensor_op("aten::add", at + 5, 2, [1], total)]

    assert len(find(recording(lines=(LOOP, "loss += log_prob * R"), body=adding))) == 1


@pytest.mark.parametrize(("rounds", "reported"), [(63, 1), (64, 0)])
def test_a_loop_over_the_elements_of_a_tensor_is_the_other_rules(rounds, reported):
    def picking(at: float, k: int) -> list[Json]:
        picked = op("aten::select", at, 1, dims=[[100], [], []], types=["float", "Scalar", "Scalar"])
        return [picked, *computing(at + 2, k)]

    assert len(find(recording(rounds=rounds, body=picking))) == reported


@pytest.mark.parametrize(("inside", "reported"), [("return (x - y).abs()", 1), ("self.last = x - y", 0)])
def test_functions_that_the_loop_calls_must_leave_nothing_behind(inside, reported):
    sites = (
        CallSite("agent.py", 6, "finish", LOOP),
        CallSite("agent.py", 7, "finish", "out.append(gap(log_prob, R))"),
        CallSite("agent.py", 2, "gap", inside),
    )
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, LENGTH * i, LENGTH))
        for k in range(40):
            at = LENGTH * i + 10 + 20 * k
            events += [mark(0, at, 0.5), mark(1, at + 1, 16), mark(2, at + 1.5, 15)] if i == 0 else []
            events += computing(at + 2, k)
    found = find(facts_of(events, callsites=sites))
    assert [[place.line for place in one.also] for one in found] == [[7]] * reported


def test_numbers_that_are_read_are_told_to_be_detached():
    def reading(at: float, k: int) -> list[Json]:
        return [*computing(at, k), tensor_op("aten::item", at + 13, 1, [1])]

    (found,), (plain,) = find(recording(body=reading)), find(recording())
    assert ".detach()" in found.fix
    assert ".detach()" not in plain.fix


def test_without_marks_of_lines_it_cannot_look():
    events = [event for i in range(3) for event in (step(i, LENGTH * i, LENGTH), *computing(LENGTH * i + 10, 0))]
    assert missing_needs(facts_of(events), tensor_list_loop.needs) == [Need.LINES]


def test_without_shapes_it_cannot_look():
    located = [step(1, 100, 100), mark(0, 101, 9), op("aten::mul", 102, 2)]
    facts = facts_of([step(0, 0, 100), op("aten::mul", 10, 2), *located])
    assert missing_needs(facts, tensor_list_loop.needs) == [Need.SHAPES]


def test_a_statement_over_several_lines_runs_each_of_them_more_than_once():
    """`losses.append(` begins and ends it; the line between is come to twice, each time for another operator."""
    lines = (LOOP, "losses.append(", "F.relu(log_prob) * R")
    sites = tuple(CallSite("agent.py", 6 + i, "finish", line) for i, line in enumerate(lines))
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, LENGTH * i, LENGTH))
        for k in range(40):
            at = LENGTH * i + 10 + 20 * k
            visits = enumerate((0, 1, 2, 2, 1)) if i == 0 else ()
            events += [mark(site, at + 3 * n, 2.9) for n, site in visits]
            events += [tensor_op("aten::relu", at + 6.5, 2, [1]), tensor_op("aten::mul", at + 9.5, 2, [1])]
    (found,) = find(facts_of(events, callsites=sites))
    assert found.evidence == {"rounds_per_step": 40, "operators_per_step": 80}
    assert [place.line for place in (found.location, *found.also) if place] == [6, 8]
