"""Results that nothing reads."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.unread_result import unread_result
from profkit.run.directory import CallSite, Recomputation, Run, UnreadResult
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, step

SITES = (
    CallSite("net.py", 5, "Net.decode", "return self.last(self.first(z))"),
    CallSite("net.py", 9, "Net.forward", "return self.decode(z), z"),
    CallSite("train.py", 3, "train", "loss.backward()"),
)
SHAPE = [64, 32]
FOUND = UnreadResult(calls=(0, 1), shape=(64, 32))


def facts_with(known: Recomputation | None, *later: dict[str, Any], steps_with: int = 4, trains: bool = True):
    """Steps of 100 µs: two layers of 30 and 20 µs that line 9 makes through line 5, and a backward pass."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 100 * number
        name = "aten::linear" if number < steps_with else "aten::sort"
        events += [step(number, at, 100), op(name, at + 10, 30), op(name, at + 42, 20)]
        events += [op("autograd::engine::evaluate_function: MulBackward0", at + 80, 10, tid=1)] * trains
        events += [op("aten::mul", at + 70, 5)]
        if not number:
            events += [mark(1, at + 5, 60), mark(0, at + 6, 58), *later]
            events += [annotation(f"{CALL_MARK}0", at + 9, 32), annotation(f"{CALL_MARK}1", at + 41, 22)]
    return facts_of(events, run=Run(recomputation=known), callsites=SITES)


def unread(*found: UnreadResult) -> Recomputation:
    return Recomputation(looked_at=2, unread=found)


def find(facts) -> list[Suspicion]:
    return list(unread_result.check(facts))


def test_calls_for_nobody_are_left_out_at_the_line_that_makes_them_all():
    facts = facts_with(unread(FOUND))
    (found,) = find(facts)
    assert (found.location.file, found.location.line) == ("net.py", 5)
    assert found.message == (
        "2 operators a step make a result that nothing reads: a tensor of 64 x 32 elements is thrown away."
    )
    assert found.severity is Severity.MEDIUM
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.52, abs=0.03)


def test_a_small_price_says_how_severe_it_is():
    (found,) = find(facts_with(unread(UnreadResult(calls=(1,), shape=()))))
    assert found.message.startswith("1 operator a step makes a result that nothing reads: a tensor of 1 elements")


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(unread(), id="everything is read"),
        pytest.param(unread(UnreadResult(calls=(0, 7), shape=(4,))), id="a call without a mark"),
        pytest.param(unread(UnreadResult(calls=(-1,), shape=(4,))), id="no number of a call"),
    ],
)
def test_without_such_calls_it_is_silent(known):
    assert find(facts_with(known)) == []


def test_a_program_that_does_not_train_may_throw_everything_away():
    assert find(facts_with(unread(FOUND), trains=False)) == []


def test_calls_of_one_step_alone_are_silent():
    assert find(facts_with(unread(FOUND), steps_with=1)) == []


@pytest.mark.parametrize(("shape", "count"), [(SHAPE, 0), ([64, 31], 1)])
def test_compiled_code_may_read_it(shape, count):
    """An operator outside of all calls takes a tensor of the shape."""
    seen = op("aten::neg", 66, 2, dims=[shape], types=["float"])
    assert len(find(facts_with(unread(FOUND), seen))) == count


def test_a_watched_call_on_another_tensor_of_the_shape_is_no_reader():
    seen = op("aten::neg", 66, 2, dims=[SHAPE], types=["float"]), annotation(f"{CALL_MARK}2", 65.5, 3)
    assert len(find(facts_with(unread(FOUND), *seen))) == 1


@pytest.mark.parametrize("known", [None, Recomputation(looked_at=2)])
def test_what_was_not_watched_cannot_be_looked_at(known):
    with pytest.raises(CannotLook):
        find(facts_with(known))


def test_a_trace_of_kernels_alone_cannot_be_looked_at():
    facts = facts_of([kernel("gemm", 10, 5)])
    assert Need.OPERATORS in missing_needs(facts, unread_result.needs)
