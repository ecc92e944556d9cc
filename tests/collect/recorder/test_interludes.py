"""When something else than steps goes on for long enough to be recorded."""

from __future__ import annotations

from collections.abc import Collection
from types import CodeType

import pytest

from profkit.collect.program.guard import Guard
from profkit.collect.recorder import interludes
from profkit.collect.recorder.interludes import InterludeWatch
from profkit.collect.whole_run.looks import Function, Line
from profkit.run.directory import CallSite
from profkit.run.whole_run import StackActivity

MS, S = 1_000_000, 1_000_000_000


def main() -> None: ...


def validate() -> None: ...


MAIN, VALIDATE = Function(main.__code__), Function(validate.__code__)
TRAINING: tuple[Line, ...] = ((MAIN, 10), (MAIN, 12))
EVALUATION: tuple[Line, ...] = ((MAIN, 10), (MAIN, 20), (VALIDATE, 30))


class Program:
    """A step ends every 10 ms, and each look comes as long behind the one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = self.ended_ns = 100 * S
        self.seen: list[object] = []
        self.may_observe, self.is_known = True, False
        monkeypatch.setattr(interludes, "time", self)
        monkeypatch.setattr(interludes, "MainThreadCall", lambda action: self)
        self.watch = InterludeWatch(Guard(self.fail), self.observe, self.begin, lambda: self.seen.append("gave up"))

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def request(self) -> None:
        self.watch._act()

    def fail(self, error: BaseException) -> None:
        raise error

    def observe(self, function: CodeType, of_steps: Collection[int]) -> bool:
        self.seen.append((function.co_name, sorted(of_steps)))
        return self.may_observe

    def begin(self, site: CallSite) -> bool:
        self.seen.append((site.function, site.line))
        return self.is_known

    def train(self, seconds: float) -> None:
        self.run(seconds, StackActivity.FORWARD, TRAINING, ends=True)

    def run(
        self, seconds: float, activity: StackActivity, lines: tuple[Line, ...] = EVALUATION, *, ends: bool = False
    ) -> None:
        for _ in range(round(seconds * 100)):
            self.now_ns += 10 * MS
            self.ended_ns = self.now_ns if ends else self.ended_ns
            self.watch.look(self.ended_ns, 10 * MS, activity, lines)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def test_an_evaluation_behind_the_training_is_observed_and_recorded(program):
    program.is_known = True
    program.train(2)
    program.run(2, StackActivity.EVALUATING)
    assert program.seen == [("main", [10, 12]), ("main", 20)]
    assert program.watch.time_ns == 2 * S


def test_it_must_take_a_tenth_of_the_time(program):
    program.train(20)
    program.run(2, StackActivity.EVALUATING)
    assert program.seen == []
    program.run(0.3, StackActivity.EVALUATING)
    assert program.seen[0] == ("main", [10, 12])


def test_several_short_ones_count_together(program):
    program.is_known = True
    program.train(8)
    program.run(0.6, StackActivity.EVALUATING)
    program.train(0.5)
    assert program.seen == []
    program.run(0.9, StackActivity.EVALUATING)
    assert program.seen == [("main", [10, 12]), ("main", 20)]


@pytest.mark.parametrize("activity", [StackActivity.SAVING, StackActivity.DATA, StackActivity.COMPILING])
def test_what_has_rules_of_its_own_is_left_alone(activity, program):
    program.train(1)
    program.run(3, activity)
    assert program.seen == []


def test_a_long_step_is_no_interlude(program):
    """Its lines are those of other steps."""
    program.train(1)
    program.run(3, StackActivity.FORWARD, TRAINING)
    assert program.seen == []


def test_lines_that_only_a_long_gap_showed_are_not_those_of_steps(program):
    """The gap's first half second looks like a step."""
    program.train(1)
    program.run(0.9, StackActivity.EVALUATING)
    program.train(1)
    assert {line for _, line in program.watch._lines_of_steps} == {10, 12}


def test_if_the_training_goes_on_before_the_steps_are_known_it_is_given_up(program):
    program.train(1)
    program.run(0.7, StackActivity.EVALUATING)
    assert program.seen == [("main", [10, 12])]
    program.train(1)
    assert program.seen[1:] == ["gave up"]


def test_nothing_is_begun_where_it_may_not_be_observed(program):
    program.may_observe = False
    program.train(1)
    program.run(0.6, StackActivity.EVALUATING)
    assert {str(seen) for seen in program.seen} == {"('main', [10, 12])"}
    assert program.watch.time_ns == 0


def test_if_nothing_was_recorded_it_is_tried_again_but_not_for_ever(program):
    program.is_known = True
    program.train(1)
    for _ in range(5):
        program.run(1, StackActivity.EVALUATING)
        program.watch.try_again()
        program.train(0.1)
    assert program.seen == [("main", [10, 12]), ("main", 20)] * 3
