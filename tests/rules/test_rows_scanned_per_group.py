"""Loops that look for each group's rows among all rows, and comparisons that are needed."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.rows_scanned_per_group import rows_scanned_per_group
from profkit.run.directory import CallSite, DataFlow, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, memory, op, step

Json = dict[str, Any]
SITE = CallSite("metric.py", 9, "ndcg", "values.append(dcg(scores[users == user]))")
USERS, SCORES = -1, -2
ROWS, LENGTH = 10_000, 40_000


def recording(  # what differs from a loop over groups, by name
    groups: int = 8,
    *,
    rows: int = ROWS,
    picked: int = 500,
    of: tuple[int, ...] = (USERS,),
    also: str = "",
    other: list[int] | None = None,
    has_memory: bool = True,
    has_flow: bool = True,
) -> Any:
    """A located step and two measured ones of 40 ms. For each group 1 ms goes to a comparison with ``other``, 1 ms to
    picking, and 1 ms to what ``also`` takes the mask."""
    events: list[Json] = []
    takes: list[tuple[int, ...]] = []
    for i in range(3):
        events.append(step(i, LENGTH * i, LENGTH))
        at, number = LENGTH * i + 100, 0
        for group in range(groups):
            mask = number
            calls = [
                ("eq", [[rows], other or []], ["long int", "Scalar"], (of[group % len(of)],)),
                ("index", [[rows], []], ["float", ""], (SCORES, mask)),
                *([(also, [[rows]], ["bool"], (mask,))] if also else []),
            ]
            for name, dims, types, given in calls:
                if i == 0:
                    events.append(annotation(f"{CALL_MARK}{number}", at - 1, 1002))
                    takes.append(given)
                events.append(op(f"aten::{name}", at, 1000, dims=dims, types=types))
                if name == "index" and has_memory:
                    address = 1000 + number + 100_000 * i
                    events += [
                        memory(at + 500, 4 * picked, address=address),
                        memory(at + 1050, -4 * picked, address=address),
                    ]
                at, number = at + 1100, number + 1
        if i == 0:
            events.append(mark(0, 50, LENGTH - 100))
    run = Run(flow=DataFlow(tuple(takes))) if has_flow else Run()
    return facts_of(events, callsites=(SITE,), run=run)


def find(facts) -> list[Suspicion]:
    return list(rows_scanned_per_group.check(facts))


def test_eight_groups_are_reported_with_what_is_picked():
    (found,) = find(recording())
    assert found.message == (
        "For each of 8 groups in a step all 10,000 rows are compared, and 5.0 % are picked on average."
    )
    assert found.evidence == {"groups": 8, "rows_compared": 10_000}
    assert found.count == 16


def test_comparing_goes_and_picking_keeps_its_share_beside_sorting_once():
    """Sorting takes 0.5 of 16 ms: 3.1 % of each. Of 8 ms in picking, 5 % stay."""
    facts = recording()
    assert predict_saving(facts, find(facts)[0].edit).time_ns_per_step == pytest.approx(16e6 - 0.5e6 - 0.4e6, rel=0.01)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"groups": 7}, False),
        ({"rows": 1024, "picked": 50}, True),
        ({"rows": 1023, "picked": 50}, False),
        ({"picked": 1562}, True),  # 125 % in all
        ({"picked": 1570}, False),
    ],
)
def test_boundaries(change, reported):
    assert bool(find(recording(**change))) is reported


@pytest.mark.parametrize(
    "change",
    [
        {"also": "sum"},  # the mask itself is needed
        {"other": [ROWS]},  # two tensors are compared, value by value
        {"of": (USERS, -5, -6, -7)},  # masks of four tensors
    ],
)
def test_silent_where_comparisons_are_needed(change):
    assert find(recording(**change)) == []


@pytest.mark.parametrize("change", [{"has_memory": False}, {"has_flow": False}])
def test_without_memory_or_flow_it_says_that_it_cannot_look(change):
    with pytest.raises(CannotLook, match="was not recorded"):
        find(recording(**change))


def test_without_shapes_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::eq", 10, 40), kernel("eq", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, rows_scanned_per_group.needs)
