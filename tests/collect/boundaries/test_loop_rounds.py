"""Rounds of loops that are on the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest

from profkit.collect.boundaries import loop_rounds
from profkit.collect.boundaries.loop_rounds import LoopRounds
from profkit.collect.program.frames import forget_locals
from profkit.source.surroundings import loops_around


class Clock:
    now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns


class IsUser(dict[str, bool]):
    def __missing__(self, file: str) -> bool:
        return file == __file__


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No coverage tool traces these tests."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(loop_rounds, "time", made)
    return made


def rounds_of(code: CodeType, on_step: Callable[[], None] = lambda: None, without: tuple[int, ...] = ()) -> LoopRounds:
    return LoopRounds(code, without, IsUser(), on_step)


def line_in(function: Callable[..., object], text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    first = function.__code__.co_firstlineno
    return next(first + at for at, line in enumerate(lines[first - 1 :]) if text in line)


def evaluate(rounds: LoopRounds, batches: int, inner: int = 2, at: int = 1) -> int:
    seen = 0
    for batch in range(batches):
        if batch == at:
            assert rounds.install(sys._getframe())
        for _ in range(inner):
            seen += 1
    return seen


def test_the_outermost_loop_with_whole_rounds_is_chosen(clock):
    rounds = rounds_of(evaluate.__code__)
    assert evaluate(rounds, 4) == 8
    rounds.remove(sys._getframe())
    clock.now_ns = 300_000_000
    loop = rounds.choose()
    assert loop is not None
    assert (loop.code, loop.line) == (evaluate.__code__, line_in(evaluate, "for batch"))


@pytest.mark.parametrize(("after_ns", "found"), [(900_000_000, False), (1_100_000_000, True)])
def test_an_inner_loop_is_chosen_once_the_outer_one_had_a_second(after_ns, found, clock):
    """Only two rounds of the outer loop begin behind the first look."""
    rounds = rounds_of(evaluate.__code__)
    loops: list[object] = []

    def inside() -> None:
        for _ in range(2):
            for _ in range(5):
                loops.append(rounds.install(sys._getframe()) if not loops else 0)

    rounds._outermost = inside.__code__
    inside()
    rounds.remove(sys._getframe())
    clock.now_ns = after_ns
    loop = rounds.choose()
    assert (loop is not None) is found
    if loop is not None:
        assert loop.line == line_in(inside, "for _ in range(5)")


def test_a_loop_around_steps_does_not_count(clock):
    without = (line_in(evaluate, "for batch"),)
    rounds = rounds_of(evaluate.__code__, without=without)
    evaluate(rounds, 9)
    rounds.remove(sys._getframe())
    clock.now_ns = 300_000_000
    assert rounds.choose() is None
    assert rounds.is_hopeless


def test_short_rounds_make_a_step_together(clock):
    """Python comes to the first line nine times in 90 ms, the last time to leave the loop."""
    steps: list[int] = []
    rounds = rounds_of(evaluate.__code__, lambda: steps.append(1))
    evaluate(rounds, 9, at=0)
    clock.now_ns = 90_000_000
    loop = rounds.choose()
    assert loop is not None
    assert loop.together == 10
    rounds.remove(sys._getframe())
    evaluate(rounds, 31, at=0)
    rounds.remove(sys._getframe())
    assert len(steps) == 3


def test_a_debuggers_tracer_stays():
    tracer = lambda *_: None  # noqa: E731  # any function
    rounds = rounds_of(evaluate.__code__)

    def install() -> bool:
        return rounds.install(sys._getframe())

    rounds._outermost = install.__code__
    sys.settrace(tracer)
    assert not install()
    rounds.remove(sys._getframe())
    assert sys.gettrace() is tracer


def test_nothing_is_installed_once_the_function_is_over():
    assert not rounds_of(evaluate.__code__).install(sys._getframe())
    assert sys.gettrace() is None


def test_removing_leaves_the_frames_as_they_were():
    rounds, frames = rounds_of(evaluate.__code__), list[FrameType]()

    def run() -> None:
        for _ in range(2):
            frames.append(sys._getframe())
            rounds.install(sys._getframe())
            rounds.remove(sys._getframe())
            assert sys._getframe().f_trace is None
        assert sys.gettrace() is None

    rounds._outermost = run.__code__
    run()
    assert frames


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="frames keep no copy of their locals")
def test_locals_survive_a_look_at_them_within_the_callback():
    """Python copies the frame's dict of locals back when the callback ends; an empty one would delete them all."""

    def look() -> None:
        frame = sys._getframe()
        while frame.f_code is not evaluate.__code__:
            assert frame.f_back is not None
            frame = frame.f_back
        assert "seen" in frame.f_locals
        forget_locals(frame)

    rounds = rounds_of(evaluate.__code__, look)
    evaluate(rounds, 9, at=0)
    rounds.remove(sys._getframe())
    rounds.choose()
    assert rounds._chosen is not None
    rounds._chosen = loop_rounds.Loop(rounds._chosen.code, rounds._chosen.line, 1)
    assert evaluate(rounds, 5, at=0) == 10
    rounds.remove(sys._getframe())


def test_loops_around_a_line(tmp_path):
    path = tmp_path / "loops.py"
    path.write_text(
        "for a in x:\n"  # 1
        "    def f():\n"  # 2
        "        while b:\n"  # 3
        "            for c in y:\n"  # 4
        "                z\n"  # 5
        "        return 1\n"  # 6
        "    f()\n",  # 7
        encoding="utf-8",
    )
    assert loops_around(str(path), 5) == ((3, 5), (4, 5))
    assert loops_around(str(path), 6) == ()
    assert loops_around(str(path), 7) == ((1, 7),)
    assert loops_around(str(tmp_path / "missing.py"), 1) == ()
