"""Embedding tables whose whole gradient is written for a few rows, and tables whose gradient has to be dense."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.dense_embedding_gradient import dense_embedding_gradient
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, op, runtime, step

Json = dict[str, Any]
ROWS, WIDTH = 1000, 8
TABLE = [ROWS, WIDTH]


def find(facts) -> list[Suspicion]:
    return list(dense_embedding_gradient.check(facts))


def look_up(at: float, indices: int = 50) -> Json:
    return op("aten::embedding", at, 5, dims=[TABLE, [indices]], types=["float", "long int"], sequence=int(at))


def backward(at: float, sequence: float, indices: int = 50, by_frequency: str = "False") -> list[Json]:
    """The backward pass takes 20 µs, 10 of them to fill the gradient with zeros."""
    node = "EmbeddingBackward0"
    return [
        op(f"autograd::engine::evaluate_function: {node}", at, 22, sequence=int(sequence)),
        op(node, at + 0.5, 21, sequence=int(sequence)),
        op(
            "aten::embedding_dense_backward",
            at + 1,
            20,
            dims=[[indices, WIDTH], [indices], [], [], []],
            types=["float", "long int", "Scalar", "Scalar", "Scalar"],
            concrete=["", "", str(ROWS), "-1", by_frequency],
        ),
        op("aten::zero_", at + 2, 10, dims=[TABLE], types=["float"]),
    ]


def accumulate(at: float, *inside: Json) -> list[Json]:
    node = op("torch::autograd::AccumulateGrad", at, 8, dims=[TABLE], types=["float"])
    return [node, *inside]


def pass_over(name: str, at: float, duration: float = 10, shapes: list[Any] | None = None) -> Json:
    return op(name, at, duration, dims=shapes or [TABLE, TABLE, []], types=["float", "float", "Scalar"])


def update(at: float, optimizer: str, *names: str) -> list[Json]:
    passes = [pass_over(name, at + 1 + 12 * i) for i, name in enumerate(names)]
    return [annotation(f"Optimizer.step#{optimizer}.step", at, 2 + 12 * len(names)), *passes]


def training(
    *names: str, optimizer: str = "SGD", indices: int = 50, by_frequency: str = "False", beside: tuple[Json, ...] = ()
) -> list[Json]:
    """Four steps of 200 µs. ``beside`` are further events of each step, timed from its start."""
    events = []
    for at in range(0, 800, 200):
        events += [step(at // 200, at, 200), look_up(at + 2, indices), *accumulate(at + 50)]
        events += backward(at + 20, at + 2, indices, by_frequency)
        events += update(at + 100, optimizer, *(names or ("aten::add_",)))
        events += [{**event, "ts": event["ts"] + at} for event in beside]
    return events


def test_the_backward_pass_and_the_update_shrink_to_the_rows_looked_up():
    facts = facts_of(training())
    (found,) = find(facts)
    # 20 µs of the backward pass and 10 µs of an update shrink to 50 of 1,000 rows
    assert found.evidence == {"rows": 1000, "looked_up_at_most": 50, "passes_ns_per_step": 30_000}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(30 * (1 - 50 / 1000) / 200, abs=1e-3)
    assert found.kind is Kind.FAULT


@pytest.mark.parametrize(("optimizer", "times"), [("SGD", 1), ("Adagrad", 3), ("Adam", 4)])
def test_a_sparse_row_takes_longer_the_more_its_update_does(optimizer, times):
    facts = facts_of(training("aten::add_", optimizer=optimizer))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(30 * (1 - times * 50 / 1000) / 200, abs=1e-3)


@pytest.mark.parametrize(("indices", "reported"), [(250, 1), (251, 0)])
def test_lookups_of_more_than_a_quarter_of_the_rows_are_silent(indices, reported):
    assert len(find(facts_of(training(indices=indices)))) == reported


@pytest.mark.parametrize(
    ("optimizer", "names"),
    [
        ("SGD", ("aten::mul_", "aten::add_", "aten::add_")),  # momentum
        ("SGD", ("aten::add", "aten::add_")),  # weight decay
        ("SGD", ("aten::_fused_sgd_",)),  # momentum and weight decay do not show
        ("Adagrad", ("aten::_foreach_add", "aten::_foreach_addcmul_", "aten::_foreach_addcdiv_")),  # weight decay
        ("Adam", ("aten::lerp_", "aten::maximum", "aten::addcdiv_")),  # AMSGrad
        ("AdamW", ("aten::mul_", "aten::lerp_", "aten::addcdiv_")),
        ("RMSprop", ("aten::addcmul_", "aten::addcdiv_")),
    ],
)
def test_optimizers_that_change_every_row_are_silent(optimizer, names):
    assert find(facts_of(training(*names, optimizer=optimizer))) == []


def test_adagrad_without_weight_decay_is_reported_as_a_fault():
    passes = ("aten::_foreach_addcmul_", "aten::_foreach_sqrt", "aten::_foreach_add_", "aten::_foreach_addcdiv_")
    (found,) = find(facts_of(training(*passes, optimizer="Adagrad")))
    assert found.kind is Kind.FAULT
    assert "Adagrad updates these" in found.fix


def test_adam_is_an_opportunity_because_its_sparse_form_differs():
    (found,) = find(facts_of(training("aten::lerp_", "aten::addcdiv_", optimizer="Adam")))
    assert found.kind is Kind.OPPORTUNITY
    assert "SparseAdam" in found.fix


def test_a_table_shared_with_the_output_layer_is_silent():
    def with_a_sum_of_two(name: str) -> list[Json]:
        node = op("autograd::engine::evaluate_function: MmBackward0", 60, 12)
        return training(beside=(node, pass_over(name, 61)))

    assert find(facts_of(with_a_sum_of_two("aten::add"))) == []
    assert len(find(facts_of(with_a_sum_of_two("aten::t")))) == 1


def test_a_table_that_is_looked_up_twice_is_reported():
    second = (
        *backward(60, 202),
        op("autograd::engine::evaluate_function: EmbeddingBackward0", 84, 14),
        pass_over("aten::add", 85),
    )
    (found,) = find(facts_of(training(beside=second)))
    assert found.evidence["looked_up_at_most"] == 100


def test_a_gradient_whose_norm_is_taken_is_silent():
    norm = pass_over("aten::linalg_vector_norm", 80, shapes=[TABLE, [], []])
    assert find(facts_of(training(beside=(norm,)))) == []


def test_scaling_by_frequency_is_silent():
    assert find(facts_of(training(by_frequency="True"))) == []


@pytest.mark.parametrize(("mode", "reported"), [("0", 1), ("2", 0)])
def test_sums_over_bags_are_reported_and_maxima_are_silent(mode, reported):
    def bag(event: Json) -> Json:
        given = ["", "", "", "", "", str(ROWS), "False", mode]
        return op(
            "aten::_embedding_bag_dense_backward",
            event["ts"],
            20,
            dims=[[50, WIDTH], [50], *6 * [[]]],
            types=["float", *7 * ["Scalar"]],
            concrete=given,
        )

    events = [bag(event) if event["name"] == "aten::embedding_dense_backward" else event for event in training()]
    found = find(facts_of(events))
    assert ["nn.EmbeddingBag(" in one.fix for one in found] == [True] * reported


def test_in_a_call_for_several_parameters_only_the_tables_share_shrinks():
    shapes = [[TABLE, [3000, WIDTH]], [TABLE, [3000, WIDTH]], []]
    names = {"aten::_foreach_add_": pass_over("aten::_foreach_add_", 0, shapes=shapes)["args"]}
    events = [{**event, "args": names.get(event["name"], event["args"])} for event in training("aten::_foreach_add_")]
    facts = facts_of(events)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((20 + 10 / 4) * 0.95 / 200, abs=1e-3)


def test_on_a_gpu_a_pass_keeps_one_of_its_launches():
    launched: list[Json] = []
    for at in range(0, 800, 200):
        for i in range(4):
            launched.append(runtime("cudaLaunchKernel", at + 102 + 2 * i, 1, correlation=at + i + 1))
            launched.append(kernel("multi_tensor_apply", at + 130 + 15 * i, 15, correlation=at + i + 1))
    facts = facts_of([*training(), *launched])
    (found,) = find(facts)
    kept = dict(zip(found.edit.rows.tolist(), found.edit.kept_ns.tolist(), strict=True))
    updates = [ns for row, ns in kept.items() if facts.trace.name_of(row) == "aten::add_"]
    assert updates == [2_500] * 4  # 10 µs for four launches


def test_it_cannot_look_at_data_parallel_training():
    with pytest.raises(CannotLook, match="averaged over processes"):
        find(facts_of(training(beside=(annotation("DistributedDataParallel.forward", 1, 15),))))


def test_without_shapes_it_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::embedding_dense_backward", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, dense_embedding_gradient.needs)
