"""The line of a running frame, also where an instruction has none."""

from __future__ import annotations

import sys
from types import CodeType, FrameType, SimpleNamespace
from typing import cast

import pytest

from profkit.collect.program.frames import line_of


def frame_at(instruction: int, line: int | None, lines: list[tuple[int, int, int | None]]) -> FrameType:
    """What `line_of` reads of a frame, as an instruction without a line cannot be stopped at."""
    code = SimpleNamespace(co_lines=lambda: lines, co_firstlineno=7)
    return cast(FrameType, SimpleNamespace(f_lineno=line, f_lasti=instruction, f_code=code))


LINES = [(0, 2, None), (2, 8, 8), (8, 12, 9), (12, 14, None), (14, 20, 11)]


def test_a_line_that_is_known_is_told():
    assert line_of(frame_at(14, 11, LINES)) == 11


def test_a_jump_without_a_line_belongs_to_the_instruction_before():
    assert line_of(frame_at(12, None, LINES)) == 9


def test_before_any_line_it_is_the_first_of_the_function():
    assert line_of(frame_at(0, None, LINES)) == 7
    assert line_of(frame_at(0, None, [])) == 7


def passes(numbers: list[int]) -> None:
    for number in numbers:
        try:
            number / 0
        except ZeroDivisionError:  # noqa: PERF203  # the loop whose jump back has no line
            pass


def lineless(code: CodeType) -> set[int]:
    return {start for start, _, line in code.co_lines() if line is None}


@pytest.mark.skipif(not lineless(passes.__code__), reason="this Python gives each instruction a line")
def test_every_instruction_of_a_loop_that_handles_errors_has_a_line():
    seen: list[tuple[int, int | None, int]] = []

    def look(frame: FrameType, event: str, _: object):
        if frame.f_code is not passes.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen.append((frame.f_lasti, frame.f_lineno, line_of(frame)))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        passes([1, 2])
    finally:
        sys.settrace(before)
    first = passes.__code__.co_firstlineno
    assert seen
    assert {line for _, _, line in seen} <= {*range(first, first + 6)}
