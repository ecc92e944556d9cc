"""A graph that a backward pass keeps and no later one walks, and graphs that are walked again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.needless_retain_graph import asks_to_retain, needless_retain_graph
from profkit.run.directory import CallSite, LiveHolder, LiveSample
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
SIZE = 1_000_000
FORWARD = CallSite("train.py", 8, "main", "loss = criterion(model(x), y)")
KEEPS = CallSite("train.py", 9, "main", "loss.backward(retain_graph=True)")
FREES = CallSite("train.py", 9, "main", "loss.backward()")
NODE = "autograd::engine::evaluate_function: MulBackward0"


def find(facts: Facts) -> list[Suspicion]:
    return list(needless_retain_graph.check(facts))


def passes(
    walked: Sequence[Sequence[int]] = ((0,), (1,), (2,), (3,)), count: int = 4, numbered: bool = True, held: float = 115
) -> list[Json]:
    """Step i, of which the first is located, makes node i, saves `SIZE` for it and frees that ``held`` µs after it
    began; its backward pass walks the nodes ``walked[i]``."""
    events = []
    for i in range(count):
        at = 100 * i
        marks = [mark(0, at + 1, 20), mark(1, at + 29, 65)] if i == 0 else []
        events += [
            step(i, at, 100),
            *marks,
            op("aten::mul", at + 2, 15, sequence=i if numbered else None),
            memory(at + 5, SIZE, 1000 + i),
            memory(at + held, -SIZE, 1000 + i),
        ]
        events += [
            op(NODE, at + 30 + 10 * n, 9, sequence=node if numbered else None) for n, node in enumerate(walked[i])
        ]
    return events


def kept(events: list[Json], line: CallSite = KEEPS, live: tuple[LiveSample, ...] = ()) -> Facts:
    return facts_of(events, callsites=(FORWARD, line), live=live)


def test_a_graph_that_no_later_pass_walks_is_held_in_vain():
    """Behind the next forward pass what it saves is held twice."""
    (found,) = find(kept(passes()))
    assert found.location is not None
    assert (found.location.file, found.location.line, found.count) == ("train.py", 9, 1)
    assert (found.size_bytes, found.peak_fraction, found.grows) == (SIZE, 0.5, False)
    assert found.evidence == {"peak_bytes": 2 * SIZE, "peak_bytes_without": SIZE}
    assert "adds 1.00 MB to the peak" in found.message
    assert found.edit is None


@pytest.mark.parametrize(
    "walked",
    [((0, 0), (1, 1), (2, 2), (3, 3)), ((0,), (1, 0), (2, 1), (3, 2)), ((0,), (1,), (2,), (3, 2))],
    ids=["twice in a step", "the step before too", "now and then"],
)
def test_a_graph_that_is_walked_again_needs_it(walked):
    assert find(kept(passes(walked))) == []


def test_without_the_flag_nothing_is_kept():
    assert find(kept(passes(), FREES)) == []


def test_what_is_freed_soon_after_the_pass_raises_no_peak():
    """The loss is local to a function that returns before the next forward pass."""
    assert find(kept(passes(held=90))) == []


def test_what_the_names_hold_would_stay():
    holder = LiveHolder("out", FORWARD, 1, 1, SIZE // 4, 1)
    batch = LiveHolder("x", FORWARD, 0, 0, SIZE, 1)
    (found,) = find(kept(passes(), live=(LiveSample(3, (holder, batch)),)))
    assert found.size_bytes == SIZE * 3 // 4
    holder = LiveHolder("out", FORWARD, 1, 1, SIZE, 1)
    assert find(kept(passes(), live=(LiveSample(3, (holder,)),))) == []


def test_graphs_that_a_name_gathers_may_be_for_a_later_pass():
    live = tuple(LiveSample(n, (LiveHolder("losses", FORWARD, n, 7 * n, 4 * n, n),)) for n in range(1, 6))
    assert find(kept(passes(), live=live)) == []


@pytest.mark.parametrize(("count", "reported"), [(3, 1), (2, 0)])
def test_one_measured_step_does_not_show_what_the_next_one_walks(count, reported):
    assert len(find(kept(passes(count=count)))) == reported


def test_nodes_without_numbers_show_nothing():
    assert find(kept(passes(numbered=False))) == []


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("loss.backward(retain_graph=True)", True),
        ("scaler.scale(loss).backward(retain_graph=True)", True),
        ("(g,) = torch.autograd.grad(loss, w, retain_graph=True)", True),
        ("loss.backward(gradient=None,", False),
        ("self.manual_backward(loss, retain_graph=True)", True),
        ("loss.backward(retain_graph=keep)", False),
        ("loss.backward(retain_graph=False)", False),
        ("g = torch.autograd.grad(loss, w, retain_graph=True, create_graph=True)", False),
        ("note('retain_graph=True')", False),
        ("loss.backward()  # retain_graph=True", False),
    ],
)
def test_the_flag_is_read_off_the_call(line, asks):
    assert asks_to_retain(line) == asks


def test_memory_and_lines_are_needed():
    without = [event for event in passes() if event["name"] != "[memory]"]
    assert missing_needs(kept(without), needless_retain_graph.needs) == [Need.MEMORY]
    unlocated = facts_of([event for event in passes() if "profkit" not in event["name"]])
    assert missing_needs(unlocated, needless_retain_graph.needs) == [Need.LINES]
