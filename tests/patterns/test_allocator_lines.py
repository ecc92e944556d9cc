"""The lines that a snapshot's stacks name: the program's, never profkit's own."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.patterns.allocator.lines import HoldingLine, holding_lines
from tests.snapshots import BACKWARD, MIB, TORCH, Frame, Recording, at, facts_of_snapshot, in_model

BASE = 1 << 40
WATCH: Frame = ("/opt/checkout/profkit/collect/tensors/recomputation.py", 279, "__torch_function__")
LAUNCH: Frame = ("/usr/lib/python3/site-packages/profkit/collect/launch/script.py", 73, "main")
WINDOWS: Frame = ("C:\\Lib\\site-packages\\profkit\\collect\\tensors\\recomputation.py", 279, "__torch_function__")
LAYER: Frame = (f"{TORCH}/nn/modules/linear.py", 134, "forward")


def lines_of_all(recording: Recording, **how: bool) -> list[HoldingLine]:
    facts = facts_of_snapshot(recording, **how)
    assert facts.allocator is not None
    return holding_lines(facts, np.ones(len(facts.allocator.allocations), dtype=bool))


def lines_of(stack: list[Frame]) -> list[tuple[str, int] | None]:
    recording = Recording()
    recording.segment(BASE, 64 * MIB)
    recording.alloc(BASE, 4 * MIB, stack)
    return [(line.site.file, line.site.line) if line.site else None for line in lines_of_all(recording)]


@pytest.mark.parametrize("watch", [WATCH, WINDOWS])
def test_profkits_watch_between_the_line_and_its_operator_is_passed_over(watch):
    assert lines_of([watch, *in_model(31), LAUNCH]) == [("/home/me/model.py", 31)]


def test_without_a_line_of_the_program_a_librarys_is_named_but_not_profkits():
    assert lines_of([WATCH, LAYER, LAUNCH]) == [(LAYER[0], 134)]


def test_what_only_profkit_stands_behind_has_no_line():
    assert lines_of([WATCH, LAUNCH]) == [None]


def test_a_program_in_a_folder_named_profkit_keeps_its_lines():
    assert lines_of(at(4, file="/home/me/profkit/train.py")) == [("/home/me/profkit/train.py", 4)]


def test_what_has_no_line_says_why():
    recording = Recording()
    recording.segment(BASE, 64 * MIB, is_older=True)
    recording.alloc(BASE, 8 * MIB, is_older=True)
    recording.alloc(BASE + 10 * MIB, 4 * MIB, in_model(31))
    recording.alloc(BASE + 20 * MIB, 2 * MIB, BACKWARD)
    told = [(line.why, line.size_bytes) for line in lines_of_all(recording)]
    assert told == [
        ("older than the history", 8 * MIB),
        ("", 4 * MIB),
        ("in the backward pass, whose threads run no Python", 2 * MIB),
    ]
    assert [line.why for line in lines_of_all(recording, with_history=False)] == ["", ""]


def test_a_line_that_calls_a_library_says_where_in_it_most_was_allocated():
    """Of a library of models; PyTorch's own lines and those of a library that calls the program tell nothing."""
    package = "/usr/lib/python3/site-packages/transformers"
    hidden, attention = (f"{package}/activations.py", 66, "forward"), (f"{package}/gpt2.py", 119, "forward")
    recording = Recording()
    recording.segment(BASE, 64 * MIB)
    recording.alloc(BASE, 8 * MIB, [LAYER, hidden, *at(10)])
    recording.alloc(BASE + 10 * MIB, 4 * MIB, [LAYER, attention, *at(10)])
    recording.alloc(BASE + 20 * MIB, 2 * MIB, [LAYER, *at(11), (f"{package}/trainer.py", 9, "train")])
    first, second = lines_of_all(recording)
    assert first.inside is not None
    assert (first.inside.file, first.inside.line, first.inside_bytes) == (hidden[0], 66, 8 * MIB)
    assert (second.inside, second.inside_bytes) == (None, 0)
