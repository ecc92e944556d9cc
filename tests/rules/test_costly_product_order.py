"""Products of three or more factors: reported where another order takes at most half as much."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.patterns.flow.contractions import Contraction, Labels, contractions
from profkit.rules.base import Facts, Need, Suspicion, missing_needs
from profkit.rules.costly_product_order import costly_product_order
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.followed import Call, following
from tests.traces import facts_of, mark, op, step

Json = dict[str, Any]
SITE = CallSite("net.py", 9, "Net.forward", "return x @ (up @ down)")
UP, DOWN, X, OTHER, BIAS = -1, -2, -3, -4, -5
SQUARE, THIN = 512, 8


def merge(rows: int = SQUARE, rank: int = THIN, columns: int = SQUARE) -> Call:
    return "aten::matmul", [[rows, rank], [rank, columns]], (UP, DOWN)


def apply(weight: int = 0, batch: int = 64, rows: int = SQUARE, columns: int = SQUARE) -> Call:
    return "aten::linear", [[batch, columns], [rows, columns]], (X, weight)


def recording(*calls: Call, gaps: tuple[int, ...] = ()) -> Facts:
    return following(SITE, *calls, gaps=gaps)


def turned(at: float, shape: list[int], order: list[int]) -> Json:
    return op("aten::permute", at, 1, dims=[shape, []], concrete=["", str(order)])


def einsum(at: float, long: int, first: list[list[int]] | None = None) -> list[Json]:
    """``bid,bjd,bjk->bik`` with so many i and j, 8 of d and k: PyTorch's labels are b, i, k, d, j."""
    shapes = [[2, long, 8], [2, long, 8], [2, long, 8]]
    products = first or [[2, long, 8], [2, 8, long]]
    return [
        op("aten::einsum", at, 400, dims=[[], shapes, []], concrete=["", "", ""]),
        turned(at + 1, [2, long, 8, 1, 1], [0, 1, 3, 2, 4]),
        turned(at + 3, [2, long, 8, 1, 1], [0, 3, 4, 2, 1]),
        turned(at + 5, [2, long, 8, 1, 1], [0, 3, 2, 4, 1]),
        op("aten::bmm", at + 7, 200, dims=products),
        op("aten::bmm", at + 210, 150, dims=[[2, long, long], [2, long, 8]]),
        op("aten::view", at + 370, 1, dims=[[2, long, 8, 1, 1], []], concrete=["", f"[2, {long}, 8]"]),
    ]


def with_einsum(long: int, first: list[list[int]] | None = None) -> Facts:
    events = [event for i in range(3) for event in (step(i, 1000.0 * i, 1000), *einsum(1000.0 * i + 10, long, first))]
    return facts_of([*events, mark(0, 5, 420)], callsites=(SITE,))


def find(facts: Facts) -> list[Suspicion]:
    return list(costly_product_order.check(facts))


def test_an_adapter_merged_before_it_is_applied():
    (found,) = find(recording(merge(), apply()))
    assert found.message == (
        "1 product a step multiplies 3 factors in an order that takes 32 times as much as the cheapest one. On the way "
        "it makes 262,144 numbers, the other 512."
    )
    assert found.fix.startswith("Multiply in the order (AC)B")
    assert found.evidence == {"factors": 3, "times_as_much": 31.67, "largest_result": 262_144}


def test_the_products_keep_the_share_of_the_cheapest_order():
    facts = recording(merge(), apply())
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.2 * (1 - 1 / 31.67), abs=1e-3)


def test_a_chain_from_the_left_onto_a_vector():
    calls: tuple[Call, ...] = (
        ("aten::mm", [[300, 300], [300, 300]], (UP, DOWN)),
        ("aten::mm", [[300, 300], [300, 300]], (0, OTHER)),
        ("aten::mm", [[300, 300], [300, 1]], (1, X)),
    )
    (found,) = find(recording(*calls))
    assert found.evidence["factors"] == 4
    assert found.fix.startswith("Multiply in the order A(B(CD))")
    assert found.rows is not None
    assert len(found.rows) == 6


@pytest.mark.parametrize("batch", [64, 300])
def test_boundary_of_the_operations_that_are_left(batch):
    """Half of the operations stay where as many rows are multiplied as half of a side, less the ranks."""
    facts = recording(merge(256, 128, 256), apply(0, batch, 256, 256))
    (known,) = contractions(facts)
    share = known.cost(known.cheapest()) / known.cost(known.done)
    assert bool(find(facts)) == (share <= 0.5)
    assert (share <= 0.5) == (batch == 64)


def test_what_is_in_the_cheapest_order_is_silent():
    down: Call = ("aten::linear", [[64, SQUARE], [THIN, SQUARE]], (X, DOWN))
    up: Call = ("aten::linear", [[64, THIN], [SQUARE, THIN]], (0, UP))
    assert find(recording(down, up)) == []


@pytest.mark.parametrize(
    "between",
    [("aten::relu", [[SQUARE, SQUARE]], (0,)), ("aten::add", [[SQUARE, SQUARE], [SQUARE, SQUARE]], (0, OTHER))],
)
def test_with_something_in_between_the_order_is_bound(between):
    assert find(recording(merge(), between, apply(1))) == []


def test_a_result_that_something_else_reads_has_to_be_made():
    reader: Call = ("aten::norm", [[SQUARE, SQUARE]], (0,))
    assert find(recording(merge(), apply(), reader)) == []


@pytest.mark.parametrize(("gap", "count"), [(1, 0), (2, 1)])
def test_what_was_not_followed_in_between_may_read_it(gap, count):
    assert len(find(recording(merge(), apply(), ("aten::relu", [[4]], (X,)), gaps=(gap,)))) == count


def test_a_bias_may_be_added_at_the_end_and_not_on_the_way():
    with_bias: Call = ("aten::linear", [[64, SQUARE], [SQUARE, SQUARE], [SQUARE]], (X, 0, BIAS))
    assert len(find(recording(merge(), with_bias))) == 1
    first: Call = ("aten::linear", [[SQUARE, THIN], [SQUARE, THIN], [SQUARE]], (UP, DOWN, BIAS))
    assert find(recording(first, apply())) == []


def test_an_einsum_from_left_to_right():
    (found,) = find(with_einsum(1000))
    assert found.evidence["factors"] == 3
    assert found.evidence["largest_result"] == 2_000_000
    assert found.fix.startswith("Multiply in the order A(BC)")
    assert "opt_einsum" in found.fix


def test_an_einsum_of_few_rows_is_silent():
    assert find(with_einsum(8)) == []


def test_an_einsum_that_begins_elsewhere_has_its_order_from_a_package():
    assert find(with_einsum(1000, first=[[2, 8, 1000], [2, 1000, 12]])) == []


def test_all_orders_are_tried():
    """The textbook's chain 30x35, 35x15, 15x5, 5x10, by multiplications alone."""
    sizes = (300, 350, 150, 50, 100)
    factors = tuple(Labels((number, number + 1)) for number in range(4))
    facts = with_einsum(8)
    known = Contraction(factors, sizes, Labels((0, 4)), (((0, 1), 2), 3), facts.operators.rows, True)
    assert known.cheapest() == ((0, (1, 2)), 3)


def test_without_the_data_flow_only_einsums_are_known():
    facts = facts_of([step(0, 0, 1000), op("aten::mm", 10, 100, dims=[[4, 4], [4, 4]])])
    assert find(facts) == []


def test_without_shapes_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::einsum", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, costly_product_order.needs)
