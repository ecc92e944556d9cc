"""Decompositions of which a part is read, and those that are needed whole."""

from __future__ import annotations

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.unread_factors import unread_factors
from profkit.savings.simulate import predict_saving
from tests.rules.shaped_steps import Json, steps_of, tensor_op
from tests.traces import facts_of, op, step

TALL = [768, 64]
STEP = 200


def find(*events: Json) -> list[Suspicion]:
    return list(unread_factors.check(facts_of(steps_of(*events))))


def svd(shape: list[int] = TALL, full: str = "False", name: str = "linalg_svd") -> Json:
    return tensor_op(name, 10, 100, shape, [], [], concrete=["", full, ""])


def cut(shape: list[int], *given: int, name: str = "slice") -> Json:
    texts = ["", *map(str, given)]
    return tensor_op(name, 120, 2, shape, *[[]] * len(given), concrete=texts)


READS_U = tensor_op("mm", 130, 10, TALL, [64, 8])
READS_V = tensor_op("mm", 150, 10, [8, 64], [64, 64])
READS_VALUES = tensor_op("gt", 150, 10, [64], [])


def test_values_alone_take_half():
    facts = facts_of(steps_of(svd(), READS_VALUES))
    (found,) = unread_factors.check(facts)
    assert found.message == (
        "1 decomposition a step computes the vectors of 768 x 64 matrices, and no operator reads them."
    )
    assert "torch.linalg.svdvals" in found.fix
    assert found.evidence == {"rows": 768, "columns": 64}
    assert predict_saving(facts, found.edit).time_ns_per_step == 50_000


def test_a_completed_basis_costs_what_its_arithmetic_takes():
    facts = facts_of(steps_of(svd(full="True"), READS_V))
    (found,) = unread_factors.check(facts)
    assert found.message == (
        "1 decomposition a step computes all 768 columns of a factor of 768 x 64 matrices. At most 64 of them are read."
    )
    assert "full_matrices=False" in found.fix
    kept = (6 * 768 * 64**2 + 20 * 64**3) / (4 * 768**2 * 64 + 22 * 64**3)
    assert predict_saving(facts, found.edit).time_ns_per_step == pytest.approx(100_000 * (1 - kept), abs=1)


def test_both_go_where_only_values_are_read():
    facts = facts_of(steps_of(svd(full="True"), READS_VALUES))
    (found,) = unread_factors.check(facts)
    kept = 0.5 * (6 * 768 * 64**2 + 20 * 64**3) / (4 * 768**2 * 64 + 22 * 64**3)
    assert predict_saving(facts, found.edit).time_ns_per_step == pytest.approx(100_000 * (1 - kept), abs=1)


@pytest.mark.parametrize(
    ("name", "advice"), [("linalg_eigh", "eigvalsh"), ("linalg_eig", "eigvals`"), ("svd", "svdvals")]
)
def test_each_decomposition_has_its_own_values(name, advice):
    makes = tensor_op("mm", 2, 4, [64, 768], TALL)
    (found,) = find(makes, svd([64, 64], "True", name), READS_VALUES)
    assert advice in found.fix


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(cut([768, 768], 1, 0, 64, 1), id="as many as the shorter side has"),
        pytest.param(cut([768, 768], -1, 0, 8, 1), id="a few"),
        pytest.param(cut([768, 768], 1, 63, name="select"), id="the last that it has"),
        pytest.param(tensor_op("numpy_T", 120, 2, [768, 768]), id="turned, and then nothing"),
    ],
)
def test_the_first_columns_need_no_completion(read):
    assert len(find(svd(full="True"), read, READS_V)) == 1


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([svd(), READS_U], id="left vectors"),
        pytest.param([svd(), READS_V], id="right vectors"),
        pytest.param([svd(), tensor_op("detach", 130, 2, [64, 64])], id="for NumPy, perhaps"),
        pytest.param([svd([64, 64], name="linalg_eigh"), READS_V], id="vectors of a square matrix"),
        pytest.param([tensor_op("mm", 2, 4, [8, 64], [64, 64]), svd()], id="what the last step left"),
        pytest.param([svd(full="True"), cut([768, 768], 1, 64, 768, 1), READS_V], id="the null space"),
        pytest.param([svd(full="True"), cut([768, 768], 1, 0, 65, 1), READS_V], id="one column of it"),
        pytest.param([svd(full="True"), cut([768, 768], 1, -8, 768, 1), READS_V], id="from the end"),
        pytest.param([svd(full="True"), tensor_op("mm", 120, 9, [768, 768], TALL), READS_V], id="the whole basis"),
        pytest.param([svd([66, 64], full="True"), READS_V], id="nothing to complete"),
        pytest.param([svd([64, 64], full="True"), READS_V], id="square"),
    ],
)
def test_what_is_read_is_silent(events):
    assert find(*events) == []


def test_a_backward_pass_needs_the_vectors():
    forward = tensor_op("linalg_svd", 10, 100, TALL, [], [], concrete=["", "False", ""], sequence=7)
    backward = op("autograd::engine::evaluate_function: LinalgSvdBackward0", 170, 20, sequence=7)
    assert find(forward, READS_VALUES, backward) == []


def test_a_small_decomposition_is_no_matter():
    small = {**svd(), "dur": 1}
    assert find(small, READS_VALUES) == []


def test_without_shapes_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::linalg_svd", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, unread_factors.needs)
