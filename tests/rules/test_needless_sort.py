"""Sorts of which only one end is read, and sorts of which more is."""

from __future__ import annotations

import pytest

from profkit.patterns.used.parts import sorted_heads
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.needless_sort import needless_sort
from profkit.savings.simulate import predict_saving
from tests.rules.shaped_steps import Json, steps_of, tensor_op
from tests.traces import facts_of, kernel, op, runtime, step

WHOLE = [8, 1000]
STEP = 200


def find(*events: Json) -> list[Suspicion]:
    return list(needless_sort.check(facts_of(steps_of(*events))))


def sort(name: str = "argsort", given: tuple[str, ...] = ("", "1", "True"), shape: list[int] = WHOLE) -> Json:
    return tensor_op(name, 10, 100, shape, *[[]] * (len(given) - 1), concrete=list(given))


def cut(dim: int, begin: int, end: int, name: str = "slice", at: float = 112) -> Json:
    given = ["", str(dim), str(begin), *([] if name == "select" else [str(end), "1"])]
    return tensor_op(name, at, 2, WHOLE, *[[]] * (len(given) - 1), concrete=given)


def test_the_first_twentieth_costs_a_ninth_of_the_sort():
    facts = facts_of(steps_of(sort(), cut(1, 0, 50)))
    (found,) = needless_sort.check(facts)
    assert found.message == ("1 operator a step sorts rows of 1,000 elements, but only 50 at one end are read.")
    assert found.evidence == {"elements": 1000, "used": 50}
    assert predict_saving(facts, found.edit).time_ns_per_step == 89_000  # 1 and 10 of 100 µs stay


@pytest.mark.parametrize(
    ("event", "used"),
    [
        (cut(1, -10, 1000), 10),
        (cut(-1, 0, 1, name="select"), 1),
        (cut(1, -1, 0, name="select"), 1),
        (cut(1, 950, 0, name="select"), 50),
    ],
)
def test_the_other_end_or_one_element_is_a_head_too(event, used):
    (found,) = find(sort("sort", ("", "-1", "False")), event)
    assert found.evidence["used"] == used


@pytest.mark.parametrize(
    "events",
    [
        [cut(1, 0, 126)],
        [cut(1, 1, 1000)],
        [cut(0, 0, 1)],
        [cut(1, 0, 50), tensor_op("cumsum", 120, 5, WHOLE)],
        [],
    ],
)
def test_silent_if_more_is_read_or_something_else_takes_it(events):
    assert find(sort(), *events) == []


def test_a_slice_of_all_is_followed_by_another():
    (found,) = find(sort(), cut(0, 0, 8), cut(1, 0, 20, at=120))
    assert found.evidence["used"] == 20


def test_boundary():
    assert len(find(sort(), cut(1, 0, 125))) == 1
    assert find(sort(shape=[4, 1000]), cut(1, 0, 50)) == []  # 4,000 elements take as long as the call


def test_the_stable_kind_has_another_argument_first():
    assert len(find(sort("sort", ("", "False", "1", "True")), cut(1, 0, 50))) == 1


def test_what_is_read_after_the_next_result_of_that_shape_is_another_tensor():
    later = (tensor_op("mul", 130, 5, WHOLE, WHOLE), tensor_op("sum", 140, 5, WHOLE))
    (found,) = find(tensor_op("neg", 1, 2, WHOLE), sort(), cut(1, 0, 50), later[1]) or [None]
    assert found is None


def test_an_unknown_dimension_is_left_alone():
    assert sorted_heads(facts_of(steps_of(sort(given=("", "name", "True")), cut(1, 0, 50)))) == []


def test_on_a_gpu_the_price_is_rough():
    events = [
        sort(),
        runtime("cudaLaunchKernel", 20, 5, correlation=1),
        kernel("radixSort", 30, 198, correlation=1),
        cut(1, 0, 50, at=140),
    ]
    steps = []
    for i in range(3):
        steps.append(step(i, STEP * i, STEP))
        for event in events:
            args = {**event["args"], **({"correlation": i + 1} if "correlation" in event["args"] else {})}
            steps.append({**event, "ts": event["ts"] + STEP * i, "args": args})
    (found,) = needless_sort.check(facts_of(steps))
    assert found.edit is not None
    assert found.edit.uncertainty == 0.5


def test_missing_data():
    assert Need.SHAPES in needless_sort.needs
    assert missing_needs(facts_of([step(0, 0, 10), op("aten::sort", 1, 5)]), needless_sort.needs)


def quantile(*, q: list[int] | None = None, shape: list[int] = WHOLE, dim: str = "", name: str = "quantile") -> Json:
    given = ["", "" if q else "0.999", dim, "False", ""]
    return tensor_op(name, 10, 100, shape, q or [], [], [], [], concrete=given)


@pytest.mark.parametrize(
    ("event", "length"),
    [
        (quantile(), 8000),
        (quantile(dim="-1"), 1000),
        (quantile(q=[1], dim="0"), 8),
        (quantile(name="nanquantile"), 8000),
    ],
)
def test_one_quantile_needs_no_sort(event, length):
    facts = facts_of(steps_of(event))
    (found,) = needless_sort.check(facts)
    assert found.message == f"1 operator a step sorts {length:,} elements in a row to find one quantile of them."
    assert found.evidence == {"elements": length, "quantiles": 1}
    assert predict_saving(facts, found.edit).time_ns_per_step == 75_000  # a quarter of 100 µs stays


def test_two_quantiles_keep_half_of_the_sort():
    facts = facts_of(steps_of(quantile(q=[2])))
    (found,) = needless_sort.check(facts)
    assert found.message.endswith("to find two quantiles of them.")
    assert predict_saving(facts, found.edit).time_ns_per_step == 50_000


@pytest.mark.parametrize("event", [quantile(q=[3]), quantile(shape=[4095]), tensor_op("cumsum", 10, 100, WHOLE)])
def test_silent_for_several_quantiles_or_few_elements(event):
    assert find(event) == []


def test_quantiles_of_enough_elements():
    assert len(find(quantile(shape=[4096]))) == 1
