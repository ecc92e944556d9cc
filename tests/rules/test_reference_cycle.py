"""Memory that only the garbage collector frees, and memory that happens to be freed while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from profkit.core.marks import GC_MARK
from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.reference_cycle import reference_cycle
from profkit.run.directory import CallSite, Remark, Run
from profkit.source.remark_kinds import CYCLE_CLOSED
from tests.traces import annotation, facts_of, mark, memory, op, step

Json = dict[str, Any]
GROW = CallSite("tree.py", 12, "grow", "value = torch.tanh(node.value @ weight)")
OTHER = CallSite("tree.py", 20, "score", "score = value.sum()")
SIZE = 200_000


def find(facts: Facts) -> list[Suspicion]:
    return list(reference_cycle.check(facts))


def steps(sizes: Sequence[int] = (SIZE,) * 5, working: int = 1000) -> list[Json]:
    """The first step is located; step i allocates ``sizes[i]`` bytes at address 1000 + i and frees the rest."""
    events = []
    for i, size in enumerate(sizes):
        at = 100 * i
        marks = [mark(0, at + 1, 20), mark(1, at + 30, 20)] if i == 0 else []
        kept = [memory(at + 5, size, 1000 + i)] if size else []
        events += [
            step(i, at, 100),
            *marks,
            op("aten::mm", at + 2, 15),
            *kept,
            op("aten::sum", at + 31, 15),
            memory(at + 32, working, 1),
            memory(at + 34, -working, 1),
        ]
    return events


def collection(at: float, freed: Sequence[int], size: int = SIZE) -> list[Json]:
    """The collector frees what these steps left, within 10 µs."""
    return [annotation(f"{GC_MARK}2", at, 10), *(memory(at + 1 + i / 10, -size, 1000 + i) for i in freed)]


def facts(*more: list[Json], made: list[Json] | None = None) -> Facts:
    return facts_of([*(made or steps()), *(event for events in more for event in events)], callsites=(GROW, OTHER))


def test_each_step_leaves_what_the_collector_frees_in_the_end():
    (found,) = find(facts(collection(600, range(5))))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("tree.py", 12)
    assert found.size_bytes == 3 * SIZE  # of four measured steps one's is there in any case
    assert found.peak_fraction == pytest.approx(3 * SIZE / (4 * SIZE + 1000))
    assert (found.count, found.grows) == (1, False)
    assert found.evidence == {"bytes_per_step": SIZE, "steps_with_garbage": 4}
    assert "200 kB a step stays in tensors" in found.message
    assert "Up to 600 kB waited for it" in found.message


def test_a_collection_within_the_steps_bounds_what_waits():
    (found,) = find(facts(collection(250, (0, 1)), collection(600, (2, 3, 4))))
    assert found.size_bytes == 2 * SIZE


def test_a_step_that_frees_its_own_garbage_leaves_none():
    assert find(facts(*(collection(100 * i + 80, (i,)) for i in range(5)))) == []


def test_what_is_freed_outside_a_collection_had_a_name():
    frees = [memory(550 + i, -SIZE, 1000 + i) for i in range(5)]
    assert find(facts(frees, collection(600, ()))) == []


def test_what_nobody_frees_is_kept():
    assert find(facts(collection(600, ()))) == []


@pytest.mark.parametrize(("left", "count"), [((0, SIZE, SIZE, 0, 0), 0), ((0, SIZE, SIZE, SIZE, 0), 1)])
def test_three_steps_make_a_habit(left, count):
    freed = [i for i, size in enumerate(left) if size]
    assert len(find(facts(collection(600, freed), made=steps(left)))) == count


@pytest.mark.parametrize(("size", "count"), [(99_999, 0), (100_000, 1)])
def test_a_few_bytes_do_not_matter(size, count):
    assert len(find(facts(collection(600, range(5), size), made=steps((size,) * 5)))) == count


def test_without_lines_the_events_themselves_are_handed_over():
    bare = [event for event in steps() if not event["name"].startswith("profkit.line")]
    (found,) = find(facts(collection(600, range(5)), made=bare))
    assert found.location is None
    assert len(found.rows) == 5


def test_without_a_collection_there_is_nothing_to_see():
    with pytest.raises(CannotLook, match="no garbage collection ran"):
        find(facts())


def test_without_memory_events_the_rule_does_not_look():
    assert missing_needs(facts_of([op("aten::mm", 1, 9)]), reference_cycle.needs) == [Need.MEMORY]


@pytest.mark.parametrize(
    ("function", "source", "line"),
    [
        ("grow", "", 40),
        ("grow.<locals>.inner", "", 40),
        ("Node.__init__", "value = Node(torch.tanh(node.value @ weight), node)", 40),
        ("Node.__init__", "value = Node(", 40),
        ("Node.__init__", "", 12),
        ("Node.__init__", "print('Node')  # Node", 12),
        ("other", "", 12),
    ],
)
def test_the_place_is_the_line_that_closes_the_cycle_where_the_step_ran_its_function(
    function: str, source: str, line: int
):
    closing = Remark(CYCLE_CLOSED, CallSite("tree.py", 40, function, "parent.children.append(self)"))
    sites = (CallSite("tree.py", 12, "grow", source or GROW.source), OTHER)
    events = [*steps(), *collection(600, range(5))]
    (found,) = find(facts_of(events, callsites=sites, run=Run(remarks=(closing,))))
    assert found.location is not None
    assert found.location.line == line
    assert [place.line for place in found.also] == ([12] if line == 40 else [])
