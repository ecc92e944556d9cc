"""Products that pick rows of a matrix, and one-hot vectors that something else needs."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.one_hot_product import one_hot_product
from profkit.run.directory import CallSite, Recomputation, Run, SparseFactor
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, step

Json = dict[str, Any]
HOT = [512, 4000]
WEIGHT = [32, 4000]


def find(facts) -> list[Suspicion]:
    return list(one_hot_product.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def one_hot(at: float, classes: int = 4000) -> Json:
    return tensor_op("one_hot", at, 20, [512], [], concrete=["", f"{classes}"])


def steps_of(*events: Json) -> Any:
    """Four steps of 200 µs with these events, and the cheapest operator of the program, of 2 µs."""
    made: list[Json] = []
    for i in range(4):
        made.append(step(i, 200 * i, 200))
        made += [{**event, "ts": event["ts"] + 200 * i} for event in (*events, tensor_op("neg", 190, 2, [4]))]
    return facts_of(made)


TO = tensor_op("to", 32, 20, HOT)
LINEAR = tensor_op("linear", 54, 40, HOT, WEIGHT)


def test_the_vectors_and_the_product_go_but_for_the_cheapest_calls():
    facts = steps_of(one_hot(10), TO, LINEAR)
    (found,) = find(facts)
    assert found.message == (
        "1 product a step picks rows of a matrix with 512 one-hot vectors of 4,000 numbers, one of which is not zero."
    )
    assert found.evidence == {"vectors": 512, "classes": 4000}
    assert sorted(found.rows.tolist()) == rows_named(facts.trace, "aten::one_hot", "aten::to", "aten::linear")
    assert predict_saving(facts, found.edit).fraction == pytest.approx((80 - 6) / 200, abs=1e-3)


@pytest.mark.parametrize("product", ["mm", "matmul"])
def test_any_product_with_a_single_matrix_picks(product):
    assert len(find(steps_of(one_hot(10), tensor_op(product, 54, 40, HOT, [4000, 32])))) == 1


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([one_hot(10), TO], id="no product"),
        pytest.param([one_hot(10), TO, tensor_op("mul", 54, 40, HOT, HOT)], id="a mask"),
        pytest.param([one_hot(10), TO, LINEAR, tensor_op("sub", 96, 9, HOT, HOT)], id="a loss beside it"),
        pytest.param(
            [one_hot(10), tensor_op("t", 32, 1, HOT), tensor_op("mm", 54, 40, HOT[::-1], [512, 8])], id="sums"
        ),
        pytest.param([tensor_op("to", 2, 5, HOT), one_hot(10), LINEAR], id="another tensor of the shape"),
        pytest.param([tensor_op("relu", 2, 5, HOT), one_hot(10), LINEAR], id="made by others, too"),
        pytest.param([one_hot(10), tensor_op("bmm", 54, 40, HOT, [4000, 32])], id="many matrices"),
        pytest.param([one_hot(10), tensor_op("matmul", 54, 40, HOT, HOT)], id="a product with themselves"),
        pytest.param([one_hot(10, classes=-1), TO, LINEAR], id="classes that the recording does not tell"),
        pytest.param([one_hot(10, classes=3999), TO, LINEAR], id="vectors of another length"),
    ],
)
def test_vectors_that_may_be_for_something_else_are_silent(events):
    assert find(steps_of(*events)) == []


def test_a_recurrent_layer_begins_with_such_a_product():
    """Its first operator and the vectors go; the rest of the layer, 30 µs, stays."""
    layer = tensor_op("gru", 54, 70, [8, 64, 4000], [1, 8, 32])
    begins = tensor_op("linear", 56, 40, [64, 8, 4000], [96, 4000])
    vectors = tensor_op("one_hot", 10, 20, [8, 64], [], concrete=["", "4000"])
    facts = steps_of(vectors, layer, begins, tensor_op("linear", 100, 20, [8, 32], [96, 32]))
    (found,) = find(facts)
    assert "before the recurrent layer" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx((60 - 4) / 200, abs=1e-3)


def test_a_layer_of_one_operator_loses_the_part_of_its_inputs_weights():
    """The input's weights are three times the state's."""
    layer = tensor_op("lstm", 54, 70, [8, 64, 96], [])
    whole = tensor_op("mkldnn_rnn_layer", 56, 60, [64, 8, 96], [128, 96], [128, 32])
    vectors = tensor_op("one_hot", 10, 20, [8, 64], [], concrete=["", "96"])
    facts = steps_of(vectors, layer, whole)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((18 + 45) / 200, abs=1e-3)


def test_a_layer_whose_operators_were_not_recorded_may_do_something_else():
    vectors = tensor_op("one_hot", 10, 20, [8, 64], [], concrete=["", "4000"])
    assert find(steps_of(vectors, tensor_op("gru", 54, 70, [8, 64, 4000], [1, 8, 32]))) == []


def read(name: str, *inside: Json, picks: bool = True) -> Any:
    """Four steps with a call that was watched. Scores have the shape of the vectors, so that shapes tell nothing."""
    known = Recomputation(looked_at=1, sparse=(SparseFactor(0, tuple(HOT), 0.999, picks=picks),))
    call = tensor_op(name, 54, 70, HOT, [] if inside else WEIGHT)
    made: list[Json] = []
    for i in range(4):
        made.append(step(i, 200 * i, 200))
        parts = (call, *inside, tensor_op("tanh", 140, 9, HOT), tensor_op("neg", 190, 2, [4]))
        made += [{**event, "ts": event["ts"] + 200 * i} for event in parts]
    marks = [mark(0, 52, 80), annotation(f"{CALL_MARK}0", 53, 75)]
    sites = (CallSite("items.py", 5, "forward", "x = self.project(hot)"),)
    return facts_of([*made, *marks], run=Run(recomputation=known), callsites=sites)


def test_vectors_that_were_read_count_however_they_were_made():
    facts = read("linear")
    (found,) = find(facts)
    assert (found.evidence, found.count) == ({"vectors": 512, "classes": 4000}, 1)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((70 - 2) / 200, abs=1e-3)
    assert find(read("linear", picks=False)) == []


def test_of_a_recurrent_layer_that_was_given_them_only_the_first_product_goes():
    inside = tensor_op("linear", 56, 40, HOT, [96, 4000])
    facts = read("gru", inside)
    (found,) = find(facts)
    assert "before the recurrent layer" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx((40 - 2) / 200, abs=1e-3)


def test_vectors_known_by_their_shape_are_told_once():
    known = Recomputation(looked_at=1, sparse=(SparseFactor(0, tuple(HOT), 0.999, picks=True),))
    events = [step(0, 0, 200), one_hot(10), TO, LINEAR, annotation(f"{CALL_MARK}0", 53, 45)]
    assert len(find(facts_of(events, run=Run(recomputation=known)))) == 1


def test_where_no_values_were_recorded_nothing_is_known():
    assert find(steps_of(tensor_op("one_hot", 10, 20, [512], []), TO, LINEAR)) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(steps_with, reported):
    events: list[Json] = []
    for i in range(4):
        parts = (one_hot(10), TO, LINEAR) if i < steps_with else (tensor_op("mm", 54, 40, [4, 4], [4, 4]),)
        events += [step(i, 200 * i, 200), *({**event, "ts": event["ts"] + 200 * i} for event in parts)]
    assert len(find(facts_of(events))) == reported


def test_without_operators_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), kernel("gemm", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, one_hot_product.needs)
