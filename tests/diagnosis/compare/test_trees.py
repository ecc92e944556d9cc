"""Two icicles as one: which parts are the same, how wide each is, and what has no place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from profkit.diagnosis.compare.comparison import MovedBranch
from profkit.diagnosis.compare.trees import moved_tree
from profkit.findings.pictures import Branch, Pictures

STEPS = (1, 1)


def recorded(*branches: Branch, steps: tuple[int, ...] = STEPS, of_device: bool = False) -> SimpleNamespace:
    pictures = Pictures(branches=branches, of_device=of_device) if branches else None
    return SimpleNamespace(diagnosis=SimpleNamespace(pictures=pictures), measured_ns=steps)


def line(number: int, begin: float, fraction: float, time_ns: int, source: str = "y = f(x)") -> Branch:
    return Branch(0, f"train.py:{number}", begin, fraction, time_ns, source)


def test_a_line_that_moved_down_is_the_same_and_times_are_those_of_a_step() -> None:
    before = recorded(line(3, 0, 1, 200), Branch(1, "aten::mm", 0, 1, 200))
    after = recorded(line(9, 0, 1, 50), Branch(1, "aten::mm", 0, 1, 50))
    tree = moved_tree([before], [after])
    assert tree is not None
    assert tree.branches == (
        MovedBranch(0, "train.py:9 y = f(x)", 0.0, 1.0, 100, 25),
        MovedBranch(1, "aten::mm", 0.0, 1.0, 100, 25),
    )


def test_what_is_gone_keeps_its_place_beside_what_is_new() -> None:
    before = recorded(line(3, 0, 1, 200), Branch(1, "aten::mm", 0, 1, 200))
    after = recorded(line(3, 0, 1, 100), Branch(1, "aten::bmm", 0, 1, 100))
    tree = moved_tree([before], [after])
    assert tree is not None
    assert [(one.name, one.begin, one.width, one.before_ns, one.after_ns) for one in tree.branches] == [
        ("train.py:3 y = f(x)", 0.0, 1.0, 100, 50),
        ("aten::mm", 0.0, 0.66667, 100, 0),
        ("aten::bmm", 0.66667, 0.33333, 0, 50),
    ]


def test_the_same_operator_below_two_lines_is_two_parts() -> None:
    side = [
        recorded(
            line(1, 0, 0.5, 100),
            line(2, 0.5, 0.5, 100, "z = g(x)"),
            Branch(1, "aten::mm", 0, 0.5, 100),
            Branch(1, "aten::mm", 0.5, 0.4, 80),
        )
    ]
    tree = moved_tree(side, side)
    assert tree is not None
    assert [(one.begin, one.before_ns) for one in tree.branches if one.depth == 1] == [(0.0, 50), (0.5, 40)]


def test_several_runs_of_a_side_are_averaged() -> None:
    tree = moved_tree([recorded(line(1, 0, 1, 100)), recorded(line(1, 0, 1, 300))], [recorded(line(1, 0, 1, 100))])
    assert tree is not None
    assert [(one.before_ns, one.after_ns) for one in tree.branches] == [(100, 50)]


@pytest.mark.parametrize("other", [recorded(), recorded(line(1, 0, 1, 100), of_device=True)])
def test_sides_without_a_picture_or_of_another_kind_have_no_tree(other: SimpleNamespace) -> None:
    assert moved_tree([recorded(line(1, 0, 1, 100))], [other]) is None
