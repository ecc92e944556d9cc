"""What the costliest places do, which of them are explained, and how much shorter the step would be without them."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Activity, Peak
from profkit.run.directory import CallSite, Host, Rates, Run
from profkit.savings.costliest import PlaceCost, costliest_places
from profkit.savings.roofline.launches import roofline_of
from tests.savings.roofline.launching import call, steps_of
from tests.traces import annotation, facts_of, kernel, mark, op, runtime, step

SITES = tuple(CallSite("/a/train.py", line, "main", f"line {line}") for line in range(3))
FLOATS = {"types": ["float", "float"]}
SQUARE = {"dims": [[100, 100], [100, 100]], **FLOATS}
"""Two million operations: 100 µs at 20 GFLOP/s."""
MEASURED = Rates("cpu", 2e9, {"float32": 20e9})


def costs(*events: dict[str, Any], rates: Rates | None = MEASURED, threads: int = 1) -> tuple[PlaceCost, ...]:
    run = Run(torch="2.13", device="", rates=rates, host=Host(1, threads, 0))
    return costliest_places(facts_of([step(0, 0, 1000), *events], run=run, callsites=SITES))


@pytest.mark.parametrize(("product_us", "explained"), [(100, True), (200, True), (201, False)])
def test_a_product_at_half_of_the_measured_rate_or_more_is_explained(product_us, explained):
    cost = costs(op("aten::mm", 0, product_us, **SQUARE))[1]  # the first is all the rest of the step
    (doing,) = cost.does
    assert (doing.activity, doing.name, doing.peak_from) == (Activity.PRODUCTS, "aten::mm", Peak.MEASURED)
    assert doing.of_peak == pytest.approx(100 / product_us)
    assert cost.is_explained == explained


def test_operators_beside_products_are_explained_by_the_memorys_rate_but_not_alone():
    add = {"dims": [[100, 100], [100, 100]], **FLOATS}  # 80 kB: 40 µs
    alone = costs(
        op("aten::mm", 0, 500, dims=[[100, 500], [500, 100]], **FLOATS),
        op("aten::add", 500, 50, **add),
        op("aten::mul", 550, 450),
    )
    product, addition = (
        next(cost for cost in alone if cost.does[0].name == name) for name in ("aten::mm", "aten::add")
    )
    assert (product.is_explained, addition.is_explained) == (True, False)
    assert addition.does[0].of_peak == pytest.approx(0.8)
    assert addition.unjudged == ""
    product = op("aten::mm", 0, 300, dims=[[100, 300], [300, 100]], **FLOATS)
    both = costs(mark(0, 0, 350), product, op("aten::add", 300, 50, **add), op("aten::mul", 350, 10))
    assert [cost.is_explained for cost in both if cost.site == 0] == [True]


def test_without_measured_rates_a_processor_has_to_reach_a_little():
    cost = costs(op("aten::mm", 0, 100, **SQUARE), rates=None)[1]
    assert cost.does[0].of_peak == pytest.approx(1.0)
    assert cost.does[0].peak_from is Peak.OWN
    cost = costs(op("aten::mm", 0, 100, **SQUARE), rates=None, threads=4)[1]
    assert cost.does[0].of_peak == pytest.approx(0.25)
    assert not cost.is_explained


def test_small_operators_python_and_updates_are_told_apart():
    small = [op("aten::add", 20 * i, 10) for i in range(10)]
    update = annotation("Optimizer.step#SGD.step", 500, 300)
    found = {cost.does[0].activity: cost for cost in costs(*small, update, op("aten::mul_", 500, 300))}
    assert found[Activity.SMALL].fraction == pytest.approx(0.1)
    assert found[Activity.SMALL].does[0].count == 10
    assert found[Activity.UPDATE].is_explained
    assert found[Activity.UPDATE].fraction == pytest.approx(0.3)
    assert found[Activity.PYTHON].unjudged.startswith("nothing that PyTorch records runs there")
    assert not found[Activity.SMALL].is_explained


@pytest.mark.parametrize(("line_of_update", "update_share"), [(0, 0.4), (1, 0.4)])
def test_python_of_the_line_that_calls_an_optimizer_is_no_update_unless_it_borders_on_one(line_of_update, update_share):
    """`loss = f(x); loss.backward(); optimizer.step()`, on one line and on two."""
    events = []
    for start in (0, 1000):
        events += [
            step(start // 1000, start, 1000),
            op("aten::mul", start + 100, 100),
            op("aten::add", start + 500, 100),
            annotation("Optimizer.step#SGD.step", start + 700, 200),
            op("aten::mul_", start + 700, 200),
        ]
    events += [mark(0, 0, 650 if line_of_update else 1000)] + ([mark(1, 650, 350)] if line_of_update else [])
    run = Run(torch="2.13", device="", rates=MEASURED, host=Host(1, 1, 0))
    found = costliest_places(facts_of(events, run=run, callsites=SITES))
    shares = {(cost.site, one.activity): one.fraction for cost in found for one in cost.does}
    assert shares[line_of_update, Activity.UPDATE] == pytest.approx(update_share, abs=0.06)
    assert shares[0, Activity.PYTHON] > 0.35


def test_without_shapes_nothing_is_explained():
    (cost,) = costs(op("aten::mm", 0, 900))[:1]
    assert not cost.is_explained
    assert cost.unjudged == "shapes were not recorded, so its rate is unknown"


def test_waiting_for_a_loader_is_that_of_the_line_that_asks():
    found = costs(annotation("enumerate(DataLoader)#_MultiProcessing.__next__", 0, 400), op("aten::mm", 400, 600))
    assert {cost.does[0].activity: round(cost.fraction, 2) for cost in found} == {
        Activity.LOADING: 0.4,
        Activity.PRODUCTS: 0.6,
    }


def test_the_bound_of_work_that_is_hidden_behind_the_device_is_small():
    events = [
        *(op("aten::mm", 0, 400), runtime("cudaLaunchKernel", 2, 3, correlation=1)),
        *(op("aten::add", 400, 500), runtime("cudaLaunchKernel", 402, 3, correlation=2)),
        *(kernel("gemm", 10, 590, correlation=1), kernel("add", 600, 400, correlation=2)),
    ]
    found = {cost.does[0].name: cost for cost in costs(*events, rates=None)}
    assert found["aten::mm"].fraction == pytest.approx(0.6, abs=0.01)
    assert found["aten::mm"].bound == pytest.approx(0.4, abs=0.01)  # the host takes 600 µs for the rest


def test_a_share_below_a_fiftieth_is_no_place():
    assert [cost.does[0].name for cost in costs(op("aten::mm", 0, 981), op("aten::add", 981, 19))] == ["aten::mm"]


def test_an_update_that_the_device_waits_for_is_not_explained():
    update = [annotation("Optimizer.step#SGD.step", 0, 900), op("aten::add_", 0, 800)]
    launch = [runtime("cudaLaunchKernel", 2, 3, correlation=1), kernel("add", 900, 100, correlation=1)]
    found = {cost.does[0].activity: cost for cost in costs(*update, *launch, rates=None)}
    assert not found[Activity.LAUNCHING].is_explained


def test_a_causal_mask_halves_what_attention_needs_as_on_the_roofline():
    """The product's least time, the roofline's: 2 x 2 x 32 x 128 x (4096 x 4097 / 2) operations at 989.5 TFLOP/s."""
    shape = [[1, 32, 4096, 128]] * 3
    types, values = ["c10::BFloat16"] * 3 + ["Scalar"] * 2, ["", "", "", "0.", "True"]
    attention = call(
        "aten::_scaled_dot_product_flash_attention",
        [*shape, [], []],
        types,
        ("flash_fwd_kernel", 350),
        values=values,
    )
    facts = steps_of(attention, length=400)
    roofline = roofline_of(facts)
    assert roofline is not None
    (doing,) = [one for one in costliest_places(facts)[0].does if one.activity is Activity.PRODUCTS]
    assert doing.of_peak == pytest.approx(roofline.points[0].of_possible)
    assert doing.of_peak == pytest.approx(139 / 350, abs=0.01)
    assert costliest_places(facts)[0].is_explained  # attention with nothing wrong reaches no more than that


@pytest.mark.parametrize(
    ("call", "activity", "name"),
    [
        ("cudaGraphLaunch", Activity.PRODUCTS, "ampere_sgemm_128x64_tn"),
        ("cudaLaunchKernel", Activity.OPERATORS, "CompiledFunction"),
    ],
)
def test_of_a_replayed_graph_its_kernels_tell_what_is_done(call: str, activity: Activity, name: str) -> None:
    events = [
        op("CompiledFunction", 10, 30),
        runtime(call, 15, 10, correlation=1),
        kernel("ampere_sgemm_128x64_tn", 50, 700, correlation=1),
        kernel("triton_poi_fused_add_0", 750, 100, correlation=1),
    ]
    doing = costs(*events)[0].does[0]
    assert (doing.activity, doing.name) == (activity, name)
    assert doing.of_peak is None


def test_without_measured_rates_a_matrix_times_a_vector_is_not_held_against_arithmetic():
    """1 x 512 times 512 x 512 has half an operation per byte: the memory sets its pace, whose rate nobody measured.
    A batch of 32 rows has 15 operations per byte."""
    few, many = ([[rows, 512], [512, 512]] for rows in (1, 32))
    (cost,) = costs(op("aten::mm", 0, 900, dims=few, **FLOATS), rates=None)[:1]
    assert cost.does[0].of_peak is None
    assert cost.unjudged.startswith("the rate of this machine's memory was not measured")
    (cost,) = costs(op("aten::mm", 0, 900, dims=many, **FLOATS), rates=None)[:1]
    assert cost.does[0].of_peak is not None
