"""Tables of all pairs that are reduced again, and large tensors that are what a program is for."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.patterns.intermediates import intermediates
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.large_intermediate import large_intermediate
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
TABLE = [128, 128, 64]
"""1,048,576 elements."""
LEFT, RIGHT = [128, 1, 64], [1, 128, 64]
STEP = 200


def find(facts) -> list[Suspicion]:
    return list(large_intermediate.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def steps_of(*events: Json) -> list[Json]:
    """Four steps of 200 µs with these events, and the cheapest operator of the program, of 2 µs."""
    cheapest = tensor_op("neg", 190, 2, [4])
    return [
        event
        for i in range(4)
        for event in (
            step(i, STEP * i, STEP),
            *({**event, "ts": event["ts"] + STEP * i} for event in (*events, cheapest)),
        )
    ]


SUB = tensor_op("sub", 10, 40, LEFT, RIGHT)
SQUARE = tensor_op("square", 52, 40, TABLE)
SUM = tensor_op("sum", 94, 40, TABLE, [])


def test_the_differences_of_all_pairs_go_but_for_the_cheapest_calls():
    facts = facts_of(steps_of(SUB, SQUARE, SUM))
    (found,) = find(facts)
    assert found.message.startswith("3 operators a step work on tensors of 128 x 128 x 64 elements")
    assert "torch.cdist(x, y).square()" in found.fix
    assert found.evidence == {"elements": 1 << 20}
    assert predict_saving(facts, found.edit).fraction == pytest.approx((120 - 6) / STEP, abs=1e-3)


@pytest.mark.parametrize(
    ("worked_on", "advice"),
    [
        ([tensor_op("abs", 52, 40, TABLE)], "p=1"),
        ([tensor_op("mul", 52, 40, TABLE, TABLE)], "torch.cdist"),
        ([tensor_op("exp", 52, 40, TABLE)], "in blocks of rows"),
    ],
)
def test_the_operators_tell_the_algebra(worked_on, advice):
    (found,) = find(facts_of(steps_of(SUB, *worked_on, SUM)))
    assert advice in found.fix


def test_products_that_are_summed_are_a_product_of_matrices():
    (found,) = find(facts_of(steps_of(tensor_op("mul", 10, 80, LEFT, RIGHT), SUM)))
    assert "torch.einsum" in found.fix


def ordered(*rest: Json, name: str = "ge") -> list[Json]:
    return [tensor_op(name, 10, 40, [1, 1024], [1024, 1]), *rest]


PAIRS = [1024, 1024]
WEIGHTED = tensor_op("mul", 52, 40, PAIRS, [1, 1024])
ROW_SUMS = tensor_op("sum", 94, 40, PAIRS, [])


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(ordered(WEIGHTED, ROW_SUMS), id="sums over all that are larger"),
        pytest.param(ordered(tensor_op("mean", 52, 40, PAIRS, []), name="gt"), id="pairs in the right order"),
        pytest.param(ordered(tensor_op("mv", 52, 40, PAIRS, [1024])), id="their product with a vector"),
        pytest.param(ordered(tensor_op("matmul", 52, 40, PAIRS, [1024, 2])), id="and with a few"),
    ],
)
def test_a_table_of_what_is_larger_needs_a_sort_alone(events):
    (found,) = find(facts_of(steps_of(*events)))
    assert "torch.searchsorted" in found.fix
    assert "cumsum" in found.fix


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(ordered(WEIGHTED, ROW_SUMS, name="eq"), id="what is equal"),
        pytest.param([tensor_op("sub", 10, 40, [1, 1024], [1024, 1]), WEIGHTED, ROW_SUMS], id="differences"),
        pytest.param(
            [tensor_op("ge", 10, 40, LEFT, RIGHT), tensor_op("all", 94, 40, TABLE, [])],
            id="vectors, element by element",
        ),
        pytest.param([tensor_op("ge", 10, 40, [1024, 1], [1]), WEIGHTED, ROW_SUMS], id="a column and a threshold"),
    ],
)
def test_other_tables_are_not_said_to_need_a_sort(events):
    assert not any("searchsorted" in found.fix for found in find(facts_of(steps_of(*events))))


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(tensor_op("matmul", 52, 40, PAIRS, [1024, 512]), id="as many vectors as attention has"),
        pytest.param(tensor_op("matmul", 52, 40, PAIRS, PAIRS), id="itself"),
        pytest.param(tensor_op("masked_fill", 52, 40, [8, 4, *PAIRS], PAIRS), id="scores that it masks"),
    ],
)
def test_a_mask_that_something_large_takes_is_silent(last):
    assert intermediates(facts_of(steps_of(*ordered(last)))) == []


def test_tiled_rows_are_such_a_table():
    tiled = tensor_op("repeat", 10, 40, [128, 128], [], concrete=["", "[64, 1]"])
    rest = [tensor_op("gt", 52, 40, [8192, 128], [8192, 1]), tensor_op("any", 94, 40, [8192, 128], [])]
    assert len(find(facts_of(steps_of(tiled, *rest)))) == 1


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([tensor_op("sub", 10, 40, TABLE, RIGHT), SQUARE, SUM], id="it was large before"),
        pytest.param([SUB, SQUARE], id="nothing reduces it"),
        pytest.param([SUB, SUM, tensor_op("linear", 140, 40, TABLE, [64, 64])], id="a layer takes it"),
        pytest.param([SUB, tensor_op("view", 52, 2, TABLE, []), SUM], id="it goes on in another shape"),
        pytest.param([SUB, SUM, {**SQUARE, "ts": 140}], id="it is used after it was reduced"),
        pytest.param(
            [tensor_op("randn", 5, 4, []), SUB, tensor_op("add", 52, 40, TABLE, TABLE), SUM], id="two of them"
        ),
        pytest.param(
            [tensor_op("matmul", 5, 4, [128, 128, 8], [8, 64]), SUB, SQUARE, SUM], id="a product of matrices makes one"
        ),
    ],
)
def test_tensors_that_may_be_what_the_program_is_for_are_silent(events):
    assert intermediates(facts_of(steps_of(*events))) == []


@pytest.mark.parametrize(("width", "found"), [(64, 1), (63, 0)])
def test_a_million_elements_are_the_least(width, found):
    table, left, right = [128, 128, width], [128, 1, width], [1, 128, width]
    events = [tensor_op("sub", 10, 40, left, right), tensor_op("sum", 94, 40, table, [])]
    assert len(intermediates(facts_of(steps_of(*events)))) == found


@pytest.mark.parametrize(("rows", "found"), [(8, 1), (7, 0)])
def test_it_is_eight_times_as_large_as_what_it_is_made_of(rows, found):
    sizes = [rows, 1, 1 << 18], [1, 8, 1 << 18]
    events = [tensor_op("sub", 10, 40, *sizes), tensor_op("sum", 94, 40, [rows, 8, 1 << 18], [])]
    assert len(intermediates(facts_of(steps_of(*events)))) == found


@pytest.mark.parametrize(("share", "found"), [(0.11, 1), (0.09, 0)])
def test_less_than_a_tenth_of_the_step_is_no_matter(share, found):
    half = share * STEP / 2 + 2
    events = [tensor_op("sub", 10, half, LEFT, RIGHT), tensor_op("sum", 94, half, TABLE, [])]
    assert len(find(facts_of(steps_of(*events)))) == found


def test_the_line_that_makes_it_leads():
    sites = (
        CallSite("loss.py", 12, "loss", "table = a[:, None] - b"),
        CallSite("loss.py", 15, "loss", "table.square()"),
    )
    first = [step(0, 0, STEP), mark(0, 5, 46), mark(1, 51, 90), SUB, SQUARE, SUM]
    later = [{**event, "ts": event["ts"] + STEP} for event in steps_of(SUB, SQUARE, SUM)]
    for number, event in enumerate(event for event in later if event["name"].startswith("ProfilerStep")):
        event["name"] = f"ProfilerStep#{number + 1}"
    (found,) = find(facts_of([*first, *later], callsites=sites))
    assert [place.line for place in found.places.all()] == [12, 15]


def test_it_needs_shapes_and_is_an_opportunity():
    assert large_intermediate.kind is Kind.OPPORTUNITY
    facts = facts_of([step(0, 0, STEP), op("aten::mul", 10, 100)])
    assert missing_needs(facts, large_intermediate.needs) == [Need.SHAPES]
