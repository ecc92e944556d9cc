"""Attention written out: what it looks like in its many spellings, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.unfused_attention import unfused_attention
from profkit.run.directory import CallSite
from profkit.run.experiment import Case, Experiment
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
Part = Callable[[float], list[Json]]
QUERIES, KEYS, VALUES, SCORES = [2, 4, 64, 16], [2, 4, 16, 64], [2, 4, 64, 16], [2, 4, 64, 64]
SITES = tuple(CallSite("model.py", line, "attend") for line in (20, 21, 22))


def find(facts) -> list[Suspicion]:
    return list(unfused_attention.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(name, at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def attention(at: float, scores: list[int] = SCORES) -> list[Json]:
    """A product of 20 µs, a scale of 5 µs, a softmax of 10 µs and a product of 12 µs."""
    return [
        tensor_op("aten::matmul", at, 20, QUERIES, KEYS),
        tensor_op("aten::div", at + 21, 5, scores),
        tensor_op("aten::softmax", at + 27, 10, scores),
        tensor_op("aten::matmul", at + 38, 12, scores, VALUES),
    ]


def steps_of(part: Part, length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_the_passes_vanish_and_both_products_take_the_time_of_the_cheaper():
    facts = facts_of(steps_of(lambda at: attention(at + 10)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::softmax")
    assert found.evidence == {"scores": 2 * 4 * 64 * 64, "passes_over_the_scores": 2}
    assert predict_saving(facts, found.edit).fraction == pytest.approx((5 + 10 + (20 - 12)) / 100, abs=1e-3)


def test_where_values_are_wider_than_keys_both_products_take_the_time_of_the_dearer():
    def part(at: float) -> list[Json]:
        first, scale, softmax, _ = attention(at)
        return [first, scale, softmax, tensor_op("aten::matmul", at + 38, 30, SCORES, [2, 4, 64, 128])]

    facts = facts_of(steps_of(part))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((5 + 10) / 100, abs=1e-3)


def test_values_as_wide_as_the_table_are_told_from_it():
    """With as many keys as a head is wide, queries, keys, values and scores all have one shape."""
    square = [2, 4, 64, 64]

    def part(at: float) -> list[Json]:
        return [
            tensor_op("aten::matmul", at, 20, square, square),
            tensor_op("aten::softmax", at + 27, 10, square),
            tensor_op("aten::matmul", at + 38, 12, square, square),
        ]

    facts = facts_of(steps_of(part))
    (found,) = find(facts)
    assert found.trial is not None
    assert found.trial.experiment.cases[0].shapes == ((8, 64, 64),) * 3
    assert predict_saving(facts, found.edit).fraction == pytest.approx((10 + (20 - 12)) / 100, abs=1e-3)


def test_the_backward_pass_keeps_five_products():
    """Backward nodes: 60 µs of products, of which 2.5 times 12 µs are left for each, 20 µs of passes, none left."""

    def part(at: float) -> list[Json]:
        forward = [
            {**event, "args": {**event["args"], "Sequence number": int(at) + i}}
            for i, event in enumerate(attention(at))
        ]
        names = ("BmmBackward0", "DivBackward0", "SoftmaxBackward0", "BmmBackward0")
        nodes = [
            op(f"autograd::engine::evaluate_function: {name}", at + 60 + 45 * i, duration, sequence=int(at) + i)
            for i, (name, duration) in enumerate(zip(names, (40, 10, 10, 20), strict=True))
        ]
        return [*forward, *nodes]

    facts = facts_of(steps_of(part, 300))
    forward, passes, products = 5 + 10 + 8, 20, 40 - 2.5 * 12
    saved = predict_saving(facts, find(facts)[0].edit).fraction
    assert saved == pytest.approx((forward + passes + products) / 300, abs=1e-3)


def test_it_hands_over_queries_keys_and_values_and_prices_all_operators_by_what_is_left():
    facts = facts_of(steps_of(lambda at: attention(at + 10)))
    trial = find(facts)[0].trial
    assert trial is not None
    case = Case("scaled_dot_product_attention", ((8, 64, 16), (8, 64, 16), (8, 64, 16)), "float32", 1.0)
    assert trial.experiment == Experiment("fused-attention", (case,), count=2)
    assert predict_saving(facts, trial.edit_of(0.25)).fraction == pytest.approx(47 * 0.75 / 100, abs=1e-3)


@pytest.mark.parametrize(
    ("first", "last", "shapes"),
    [
        pytest.param(
            ([8, 64, 16], [8, 16, 64]),
            ([8, 20, 64], [8, 64, 64]),
            ((8, 64, 16), (8, 64, 16), (8, 64, 20)),
            id="values first, transposed",
        ),
        pytest.param(
            ([2, 4, 64, 16], [2, 4, 16, 64]),
            (SCORES, [2, 4, 64, 20]),
            ((8, 64, 16), (8, 64, 16), (8, 64, 20)),
            id="wider values",
        ),
        pytest.param(([64, 16], [2, 4, 16, 64]), (SCORES, VALUES), None, id="queries for all heads alike"),
    ],
)
def test_only_products_of_one_batch_are_run(first, last, shapes):
    def part(at: float) -> list[Json]:
        return [
            tensor_op("aten::matmul", at, 20, *first),
            tensor_op("aten::softmax", at + 27, 10, SCORES),
            tensor_op("aten::matmul", at + 38, 12, *last),
        ]

    (found,) = find(facts_of(steps_of(part)))
    assert (found.trial.experiment.cases[0].shapes if found.trial else None) == shapes


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(
            lambda at: [
                tensor_op("aten::baddbmm", at, 9, [8, 64, 64], [8, 64, 16], [8, 16, 64], [], []),
                tensor_op("aten::softmax", at + 10, 9, [8, 64, 64]),
                tensor_op("aten::bmm", at + 20, 9, [8, 64, 64], [8, 64, 16]),
            ],
            id="a product that adds",
        ),
        pytest.param(
            lambda at: [
                tensor_op("aten::bmm", at, 9, [8, 64, 16], [8, 16, 64]),
                tensor_op("aten::view", at + 10, 1, [8, 64, 64]),
                tensor_op("aten::softmax", at + 12, 9, SCORES),
                tensor_op("aten::bmm", at + 30, 9, [8, 16, 64], [8, 64, 64]),
            ],
            id="values first, transposed",
        ),
        pytest.param(
            lambda at: [
                tensor_op("aten::einsum", at, 9, [2, 64, 4, 16], [2, 64, 4, 16]),
                tensor_op("aten::bmm", at + 1, 7, [8, 64, 16], [8, 16, 64]),
                tensor_op("aten::softmax", at + 12, 9, SCORES),
                tensor_op("aten::einsum", at + 30, 9, SCORES, [2, 64, 4, 16]),
                tensor_op("aten::bmm", at + 31, 7, [8, 64, 64], [8, 64, 16]),
            ],
            id="einsum",
        ),
        pytest.param(
            lambda at: [
                tensor_op("aten::matmul", at, 9, QUERIES, KEYS),
                tensor_op("aten::linear", at + 10, 9, [2, 64, 64], [64, 64]),
                tensor_op("aten::masked_fill", at + 20, 9, SCORES, [64, 64]),
                tensor_op("aten::softmax", at + 30, 9, SCORES),
                tensor_op("aten::linear", at + 40, 9, [2, 64, 64], [64, 64]),
                tensor_op("aten::matmul", at + 50, 9, SCORES, VALUES),
            ],
            id="projections in between",
        ),
        pytest.param(
            lambda at: [
                tensor_op("aten::matmul", at, 9, [64, 16], KEYS),
                tensor_op("aten::softmax", at + 12, 9, SCORES),
                tensor_op("aten::matmul", at + 30, 9, SCORES, VALUES),
            ],
            id="queries for all heads alike",
        ),
    ],
)
def test_other_spellings_are_found(part):
    assert len(find(facts_of(steps_of(part)))) == 1


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(lambda at: attention(at)[:3], id="a softmax whose result goes elsewhere"),
        pytest.param(lambda at: attention(at)[1:], id="a softmax of what no product made"),
        pytest.param(
            lambda at: [
                tensor_op("aten::linear", at, 20, [512, 64], [100, 64]),
                tensor_op("aten::softmax", at + 22, 9, [512, 100]),
                tensor_op("aten::matmul", at + 32, 9, [512, 100], [100, 64]),
            ],
            id="a gate",
        ),
        pytest.param(
            lambda at: [tensor_op("aten::bmm", at, 20, [8, 128, 16], [8, 16, 32]), *attention(at)[1:]],
            id="a product of as many elements in another shape",
        ),
        pytest.param(
            lambda at: [op("aten::scaled_dot_product_attention", at, 80), *attention(at + 10)], id="the function"
        ),
    ],
)
def test_what_only_looks_alike_is_silent(part):
    assert find(facts_of(steps_of(part))) == []


def passed_over(before: tuple[str, list[int]] | None = None, behind: tuple[str, list[int]] | None = None) -> Part:
    """Attention with an operator on the table, and on one more tensor, before or behind the softmax."""

    def part(at: float) -> list[Json]:
        first, scale, softmax, last = attention(at)
        more = [
            tensor_op(f"aten::{one[0]}", when, 1, SCORES, one[1])
            for one, when in ((before, at + 26), (behind, at + 37))
            if one
        ]
        return sorted([first, scale, softmax, last, *more], key=lambda event: event["ts"])

    return part


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        pytest.param(("tanh", []), None, id="a cap on the scores"),
        pytest.param(("abs", []), None, id="the scores' size without their sign"),
        pytest.param(("mul", SCORES), None, id="a gate on the scores"),
        pytest.param(None, ("mul", SCORES), id="a sign for each weight"),
        pytest.param(None, ("mul_", SCORES), id="the same in place"),
        pytest.param(None, ("add", SCORES), id="weights that are added"),
    ],
)
def test_what_the_fused_kernel_cannot_compute_is_silent(before, behind):
    assert find(facts_of(steps_of(passed_over(before, behind)))) == []


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        pytest.param(("add", SCORES), None, id="a bias for each pair"),
        pytest.param(("mul", [1]), None, id="a learnt scale"),
        pytest.param(("mul", [1, 4, 1, 1]), None, id="a scale for each head"),
        pytest.param(("masked_fill", SCORES), None, id="a mask of the table's size"),
        pytest.param(None, ("to", []), id="a cast of the weights"),
        pytest.param(None, ("mul", [1, 4, 1, 1]), id="a factor for each head"),
        pytest.param(None, ("masked_fill", SCORES), id="rows without keys"),
    ],
)
def test_what_the_fused_kernel_can_compute_is_found(before, behind):
    assert len(find(facts_of(steps_of(passed_over(before, behind))))) == 1


@pytest.mark.parametrize(("length", "reported"), [(64, 1), (63, 0)])
def test_a_table_of_4096_scores_is_the_least(length, reported):
    def part(at: float) -> list[Json]:
        return [
            tensor_op("aten::matmul", at, 20, [64, 16], [16, length]),
            tensor_op("aten::softmax", at + 27, 10, [64, length]),
            tensor_op("aten::matmul", at + 38, 12, [64, length], [length, 16]),
        ]

    assert len(find(facts_of(steps_of(part)))) == reported


def dropped(active: bool, on_device: bool = False) -> Part:
    def part(at: float) -> list[Json]:
        first, scale, softmax, last = attention(at)
        inside = [tensor_op("aten::mul", at + 39, 2, SCORES)] * active
        dropout = [tensor_op("aten::dropout", at + 38, 5, SCORES), *inside]
        work = [
            runtime("cudaLaunchKernel", at + 1, 2, correlation=int(at) + 1),
            kernel("gemm", at + 5, 5, correlation=int(at) + 1),
        ] * on_device
        return [first, scale, softmax, *dropout, {**last, "ts": at + 50}, *work]

    return part


def test_with_an_active_dropout_only_a_device_has_a_fused_kernel():
    assert len(find(facts_of(steps_of(dropped(active=False))))) == 1
    assert find(facts_of(steps_of(dropped(active=True)))) == []
    assert len(find(facts_of(steps_of(dropped(active=True, on_device=True))))) == 1


def test_on_a_device_it_is_the_kernels_that_count():
    def part(at: float) -> list[Json]:
        calls = [
            runtime("cudaLaunchKernel", event["ts"] + 1, 2, correlation=int(at) + i + 1)
            for i, event in enumerate(attention(at))
        ]
        durations = (100, 50, 60, 80)
        starts = [at + 10 + sum(durations[:i]) for i in range(4)]
        kernels = [kernel("k", starts[i], durations[i], correlation=int(at) + i + 1) for i in range(4)]
        return [*attention(at), *calls, *kernels, runtime("cudaStreamSynchronize", at + 55, 246)]

    facts = facts_of(steps_of(part, 302))
    saved = predict_saving(facts, find(facts)[0].edit).fraction
    assert saved == pytest.approx((50 + 60 + 20) / 302, abs=0.03)


def test_where_the_device_waits_for_launches_those_of_the_passes_vanish():
    def part(at: float) -> list[Json]:
        calls = [
            runtime("cudaLaunchKernel", event["ts"] + 1, 2, correlation=int(at) + i + 1)
            for i, event in enumerate(attention(at))
        ]
        return [
            *attention(at),
            *calls,
            *(kernel("k", call["ts"] + 1, 1, correlation=call["args"]["correlation"]) for call in calls),
        ]

    facts = facts_of(steps_of(part))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((5 + 10) / 100, abs=0.01)


def test_it_is_told_where_the_formula_begins_and_its_other_lines_besides():
    first = [step(9, 0, 100), mark(0, 0, 26.5), mark(1, 26.8, 10.5), mark(2, 37.8, 13), *attention(0)]
    later = steps_of(lambda at: attention(at + 100))
    facts = facts_of(
        [*first, *({**e, "ts": e["ts"] + 100 * e["name"].startswith("Prof")} for e in later)], callsites=SITES
    )
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {1}
    assert [place.line for place in found.places.all()] == [20, 21, 22]


def test_each_line_with_a_softmax_is_one_finding():
    facts = facts_of(steps_of(lambda at: [*attention(at), *attention(at + 100)], 200))
    (found,) = find(facts)
    assert len(found.rows) == 8


def test_without_shapes_it_cannot_look():
    facts = facts_of(steps_of(lambda at: [op("aten::softmax", at, 20)]))
    assert Need.SHAPES in missing_needs(facts, unfused_attention.needs)


@pytest.mark.parametrize(("along", "found"), [("-1", 0), ("3", 0), ("-2", 1), ("", 1)])
def test_shares_that_are_not_what_the_product_adds_up_are_no_attention(along, found):
    """128 pixels are pooled into 64 slots: the product adds up over the pixels. Attention has shares that add up to one
    over the pixels; here they do so over the slots, unless the softmax goes along the other dimension."""
    table, pooled = [2, 4, 128, 64], [2, 4, 64, 128]

    def part(at: float) -> list[Json]:
        return [
            tensor_op("aten::matmul", at, 20, [2, 4, 128, 16], [2, 4, 16, 64]),
            tensor_op("aten::softmax", at + 27, 10, table, concrete=["", along, ""]),
            tensor_op("aten::matmul", at + 38, 12, pooled, [2, 4, 128, 16]),
        ]

    assert len(find(facts_of(steps_of(part)))) == found


@pytest.mark.parametrize(
    ("queries", "keys", "reported"), [(64, 64, True), (63, 64, False), (64, 63, False), (1, 512, False)]
)
def test_small_tables_gain_nothing_on_a_cpu(queries, keys, reported):
    heads = [256, 4]

    def part(at: float) -> list[Json]:
        scores = [*heads, queries, keys]
        return [
            tensor_op("aten::matmul", at, 20, [*heads, queries, 16], [*heads, 16, keys]),
            tensor_op("aten::softmax", at + 27, 10, scores),
            tensor_op("aten::matmul", at + 38, 12, scores, [*heads, keys, 16]),
        ]

    assert bool(find(facts_of(steps_of(part)))) is reported
