"""Inverses: reported where nothing but products with a few vectors reads them."""

from __future__ import annotations

import pytest

from profkit.rules.base import CannotLook, Facts, Need, Suspicion, missing_needs
from profkit.rules.explicit_inverse import explicit_inverse
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.followed import Call, following
from tests.traces import facts_of, op, step

SITE = CallSite("gp.py", 9, "loss", "return y @ torch.inverse(k) @ y")
K, Y = -1, -2


def inverse(side: int = 500, name: str = "aten::inverse", stacked: tuple[int, ...] = ()) -> Call:
    return name, [[*stacked, side, side]], (K,)


def applied(columns: int = 1, side: int = 500) -> Call:
    return "aten::matmul", [[columns, side], [side, side]], (Y, 0)


def find(*calls: Call, gaps: tuple[int, ...] = ()) -> list[Suspicion]:
    return list(explicit_inverse.check(recording(*calls, gaps=gaps)))


def recording(*calls: Call, gaps: tuple[int, ...] = ()) -> Facts:
    return following(SITE, *calls, gaps=gaps)


@pytest.mark.parametrize("name", ["aten::inverse", "aten::linalg_inv", "aten::linalg_inv_ex"])
def test_an_inverse_for_one_vector(name):
    (found,) = find(inverse(name=name), applied())
    assert found.message == "1 matrix a step is inverted only to be multiplied. It has 500 rows and meets one vector."
    assert found.evidence == {"rows": 500, "vectors": 1, "matrices": 1}


def test_it_keeps_what_factoring_and_solving_take():
    facts = recording(inverse(), applied(100))
    (found,) = explicit_inverse.check(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.1 * (1 - 0.26 - 0.65 * 0.2), abs=1e-3)


def test_all_products_count():
    (found,) = find(inverse(), applied(3), applied(4), ("aten::mv", [[500, 500], [500]], (0, Y)))
    assert found.evidence["vectors"] == 8


def test_a_stack_of_matrices():
    product: Call = ("aten::bmm", [[8, 100, 100], [8, 100, 5]], (0, Y))
    (found,) = find(inverse(100, stacked=(8,)), product)
    assert found.evidence == {"rows": 100, "vectors": 5, "matrices": 8}


def test_distances_by_einsum():
    product: Call = ("aten::einsum", [[], [[32, 500], [500, 500], [32, 500]], []], (Y, 0, Y))
    (found,) = find(inverse(), product)
    assert found.evidence["vectors"] == 32


@pytest.mark.parametrize(("side", "columns", "count"), [(64, 32, 1), (63, 1, 0), (64, 33, 0), (500, 250, 1)])
def test_boundaries_of_rows_and_vectors(side, columns, count):
    assert len(find(inverse(side), applied(columns, side))) == count


def test_a_view_of_the_inverse_changes_nothing():
    view: Call = ("aten::transpose", [[500, 500], [], []], (0,))
    assert len(find(inverse(), view, applied())) == 1


@pytest.mark.parametrize("reader", ["aten::diagonal_copy", "aten::add", "aten::trace"])
def test_what_needs_the_inverse_itself_is_silent(reader):
    assert find(inverse(), applied(), (reader, [[500, 500]], (0,))) == []


def test_an_inverse_that_nothing_reads_is_another_fault():
    assert find(inverse()) == []


@pytest.mark.parametrize(("gap", "count"), [(1, 0), (2, 1)])
def test_what_was_not_followed_may_read_it(gap, count):
    assert len(find(inverse(), applied(), ("aten::relu", [[4]], (Y,)), gaps=(gap,))) == count


def test_a_product_of_unknown_shapes_is_silent():
    assert find(inverse(), ("aten::matmul", [[], []], (Y, 0))) == []


def test_a_pseudoinverse_is_none():
    assert find(inverse(name="aten::linalg_pinv"), applied()) == []


def test_without_the_data_flow_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 1000), op("aten::inverse", 10, 100, dims=[[500, 500]])])
    with pytest.raises(CannotLook):
        list(explicit_inverse.check(facts))


def test_without_shapes_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::inverse", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, explicit_inverse.needs)
