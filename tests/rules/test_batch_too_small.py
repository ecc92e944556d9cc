"""A batch whose step hardly depends on it, and steps that are full of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.rules.base import CannotLook, Need, Severity, missing_needs
from profkit.rules.batch_too_small import batch_too_small
from profkit.run.directory import CallSite, DeviceMemorySample, LoaderUse, Run
from profkit.savings.larger_batch import larger_batch
from tests.traces import annotation, facts_of, kernel, op, runtime, step

LOADER = CallSite("train.py", 7, "main", "loader = DataLoader(data, batch_size=8)")
GIB = 1 << 30
H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
ROW = [[8, 64]]


def run_with(workers=0, size=8):
    return Run(loaders=(LoaderUse(workers, size, pin_memory=False, persistent_workers=False, site=LOADER),))


def steps_of(*events, length=1000, count=4):
    """The same events in each step, at times from its beginning."""
    steps = [step(i, length * i, length) for i in range(count)]
    return steps + [{**event, "ts": event["ts"] + length * i} for i in range(count) for event in events]


def host(grows_us, dims=ROW, **more):
    """An operator of which all but the price of a call grows with the batch."""
    events = steps_of(op("aten::native_layer_norm", 100, 20 + grows_us, dims=dims, types=["float"]), **more)
    return facts_of(events, run=run_with())


def told(facts):
    return list(batch_too_small.check(facts))


def test_a_step_that_hardly_grows_is_told_with_what_more_would_give():
    (found,) = told(host(300))
    assert found.message == (
        "70 % of the step takes the same time whatever the batch, which has 8 samples. Predicted samples a "
        "second: 1.5 times with 16, 2.1 times with 32, 2.6 times with 64. Beyond 128 they hardly increase."
    )
    assert (found.location.line, found.severity) == (7, Severity.LOW)
    assert "learning rate" not in found.fix


@pytest.mark.parametrize(("grows_us", "reported"), [(332, 1), (335, 0), (900, 0)])
def test_a_step_that_grows_with_the_batch_is_none(grows_us, reported):
    assert len(told(host(grows_us))) == reported


def test_operators_without_the_batch_stay():
    assert larger_batch(host(300, dims=[[64, 3]])).growing_ns == 300_000  # 64 is a multiple of the batch
    assert larger_batch(host(300, dims=[[7, 3]])).growing_ns == 0


def test_the_update_stays_and_the_learning_rate_is_warned_of():
    update = annotation("Optimizer.step#SGD.step", 500, 400), op("aten::add_", 510, 300, dims=ROW, types=["float"])
    facts = facts_of(steps_of(op("aten::relu", 100, 50, dims=ROW), *update), run=run_with())
    assert larger_batch(facts).growing_ns == 30_000
    (found,) = told(facts)
    assert "learning rate" in found.fix


def test_a_product_that_reads_its_weights_stays():
    """8 rows of 8192: the arithmetic takes 13 ms at 80 GFLOP/s, and the weights are laid out and read meanwhile."""
    product = op("aten::mm", 100, 30_000, dims=[[8, 8192], [8192, 8192]], types=["float", "float"])
    found = larger_batch(facts_of(steps_of(product, length=32_000), run=run_with()))
    assert found.growing_ns == int(2 * 8 * 8192**2 / 80)
    each = op("aten::bmm", 100, 30_000, dims=[[8, 64, 8192], [8, 8192, 64]], types=["float", "float"])
    assert larger_batch(facts_of(steps_of(each, length=32_000), run=run_with())).growing_ns == 29_980_000


def test_a_product_at_the_best_rate_grows():
    """512 rows at 90 GFLOP/s: as fast as any there."""
    size, took_us = 2 * 512**3, 3000
    product = op("aten::mm", 100, took_us, dims=[[512, 512], [512, 512]], types=["float", "float"])
    found = larger_batch(facts_of(steps_of(product, length=4000), run=run_with()))
    assert size / (took_us * 1000) > 80
    assert found.growing_ns == pytest.approx(took_us * 1000, rel=0.01)


@pytest.mark.parametrize(("other_us", "grows_us"), [(2, 16), (17, 1), (30, 12), (40, 22)])
def test_a_call_costs_no_more_than_the_cheapest_of_its_name(other_us, grows_us):
    one = op("aten::native_layer_norm", 100, other_us, dims=[[8, 1]], types=["float"])
    other = op("aten::native_layer_norm", 200, 18, dims=ROW, types=["float"])
    found = larger_batch(facts_of(steps_of(one, other), run=run_with()))
    assert found.growing_ns == pytest.approx(1000 * grows_us, abs=300)  # and the bytes that are moved


def test_a_view_takes_as_long_whatever_its_size():
    dear = op("aten::transpose", 100, 500, dims=ROW, types=["float"])
    assert larger_batch(facts_of(steps_of(dear), run=run_with())).growing_ns == 0


def test_samples_that_the_main_process_makes_grow():
    reading = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 820)
    facts = facts_of(steps_of(reading, op("aten::relu", 900, 20, dims=ROW)), run=run_with())
    assert larger_batch(facts).growing_ns == pytest.approx(800_000, rel=0.01)
    assert told(facts) == []


def test_a_loader_that_bounds_is_none():
    waiting = annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 500)
    facts = facts_of(steps_of(waiting, op("aten::relu", 600, 30, dims=ROW)), run=run_with(workers=2))
    assert told(facts) == []


def on_device(kernel_us, rows=8, memory=()):
    """A kernel on a tensor of 64 float columns, launched early in a step of 1000 µs."""
    events = []
    for i in range(4):
        events += [
            op("aten::relu", 1000 * i + 10, 30, dims=[[rows, 64]], types=["float"], external=i),
            runtime("cudaLaunchKernel", 1000 * i + 20, 5, correlation=i + 1),
            kernel("relu", 1000 * i + 40, kernel_us, correlation=i + 1),
        ]
    facts = facts_of([*steps_of(), *events], run=run_with(), **H100)
    return type(facts)(facts.trace, facts.run, device_memory=memory)


def test_a_device_that_is_hardly_used_has_room():
    memory = (DeviceMemorySample(0, 0, 80 * GIB, GIB, 10 * GIB, GIB, 10 * GIB),)
    (found,) = told(on_device(5, memory=memory))
    assert found.severity is Severity.MEDIUM
    assert found.evidence["gain_at_4x"] == 4.0
    assert "The device's memory holds at least 7 times the batch." in found.message


@pytest.mark.parametrize("used", [50, 79, 200])
def test_a_device_that_is_nearly_full_may_have_no_room(used):
    memory = (DeviceMemorySample(0, 0, 80 * GIB, GIB, used * GIB, GIB, used * GIB),)
    (found,) = told(on_device(5, memory=memory))
    assert "The device's memory may not hold twice the batch." in found.message


def test_a_device_that_moves_all_it_can_is_full():
    """3 GB in and out take 1.8 ms at the H100's 3.35 TB/s; half of that is 0.9 ms."""
    rows = 8 * 700_000
    assert told(on_device(950, rows=rows)) == []
    assert larger_batch(on_device(950, rows=rows)).gain(4) < 1.2


def product_on_device(kernel_name, types):
    """68.7 G operations in 1500 of 2000 µs: 45.8 TFLOP/s, of an H100's 67 in float32, 494.5 in TF32 and 989.5."""
    events = []
    for i in range(4):
        events += [
            op("aten::mm", 2000 * i + 10, 30, dims=[[4096, 2048], [2048, 4096]], types=types, external=i),
            runtime("cudaLaunchKernel", 2000 * i + 20, 5, correlation=i + 1),
            kernel(kernel_name, 2000 * i + 40, 1500, correlation=i + 1),
        ]
    return facts_of([*steps_of(length=2000), *events], run=run_with(), **H100)


def test_products_of_full_float32_fill_a_device_at_their_own_rate():
    assert told(product_on_device("sm80_xmma_gemm_f32f32_ffma", ["float", "float"])) == []
    assert told(product_on_device("sm80_xmma_gemm_f32f32_ffma", [])) == []
    assert told(product_on_device("cutlass_tensorop_s1688gemm_tf32", ["float", "float"]))
    assert told(product_on_device("sm90_xmma_gemm_bf16bf16", ["c10::BFloat16", "c10::BFloat16"]))


@pytest.mark.parametrize(
    ("run", "why"),
    [(Run(), "no DataLoader was used"), (run_with(size=None), "no DataLoader was used")],
)
def test_without_the_size_of_a_batch_it_cannot_look(run, why):
    facts = facts_of(steps_of(op("aten::relu", 100, 50, dims=ROW)), run=run)
    with pytest.raises(CannotLook, match=why):
        told(facts)


def test_on_an_unknown_gpu_it_cannot_look():
    facts = on_device(5)
    unknown = facts_of(
        [
            *steps_of(op("aten::relu", 10, 30, dims=ROW), runtime("cudaLaunchKernel", 20, 5, correlation=1)),
            kernel("relu", 40, 5, correlation=1),
        ],
        run=facts.run,
    )
    with pytest.raises(CannotLook, match=r"on this GPU is not known: .*--card NAME"):
        told(unknown)


@pytest.mark.parametrize(("held_us", "is_known"), [(240, True), (260, False)])
def test_operators_that_others_held_up_tell_nothing(held_us, is_known):
    lengths = (20, 20, 20, 20 + held_us)
    events = [op("aten::relu", 10 + 100 * i, length, dims=ROW, types=["float"]) for i, length in enumerate(lengths)]
    facts = facts_of(steps_of(*events), run=run_with())
    assert (larger_batch(facts) is not None) is is_known
    if not is_known:
        with pytest.raises(CannotLook, match="held up"):
            told(facts)


def crowded(growing_us, waits_us, plain_us, count=4, threads=1):
    """A step of 1000 µs with `ROW` operators that take ``growing_us``; in each the program waits so long for a CPU."""
    events = [op("aten::relu", 10 + 200 * i, length, dims=ROW, types=["float"]) for i, length in enumerate(growing_us)]
    run = replace(
        run_with(),
        measured_step_crowded_ns=tuple(1000 * us for us in waits_us),
        reference_step_ns=tuple(1000 * us for us in plain_us),
        flags={"torch_threads": threads},
    )
    return facts_of(steps_of(*events, count=count), run=run)


def test_beside_other_programs_the_step_is_its_own_time_without_the_waits():
    found = larger_batch(crowded((40, 40, 40, 190), (600, 600, 600, 600), (900,)))
    assert (found.step_ns, found.growing_ns) == (400_000, 80_000)  # each operator takes 20 µs and the price of a call


def test_beside_other_programs_the_shortest_step_without_the_recording_counts():
    found = larger_batch(crowded((40, 40, 40, 190), (600, 600, 600, 600), (950, 300, 900, 960)))
    assert (found.step_ns, found.growing_ns) == (300_000, 80_000)


def test_short_waits_for_a_cpu_change_nothing():
    found = larger_batch(crowded((40, 40, 40, 60), (240,) * 4, ()))
    assert (found.step_ns, found.growing_ns) == (1_000_000, 100_000)
    found = larger_batch(crowded((40, 40, 40, 60), (260,) * 4, ()))
    assert (found.step_ns, found.growing_ns) == (740_000, 80_000)


def test_threads_that_wait_for_each_other_tell_nothing():
    """The one that the main thread waits for may have no CPU either."""
    assert larger_batch(crowded((40, 40, 40, 190), (600,) * 4, (), threads=2)) is None
    assert larger_batch(crowded((40, 40, 40, 60), (240,) * 4, (), threads=2)) is not None


@pytest.mark.parametrize("waits_us", [(), (600,), (600,) * 5])
def test_waits_that_are_not_those_of_the_steps_tell_nothing(waits_us):
    assert larger_batch(crowded((20, 20, 20, 300), waits_us, ())) is None


@pytest.mark.parametrize(
    ("name", "call_us"),
    [("aten::mkldnn_convolution", 40), ("aten::convolution_backward", 90), ("aten::_slow_conv2d_forward", 20)],
)
def test_a_convolution_of_onednn_costs_more_to_call(name, call_us):
    shapes = [[8, 3, 16, 16], [16, 3, 3, 3]]
    facts = facts_of(steps_of(op(name, 100, 500, dims=shapes, types=["float"] * 2)), run=run_with())
    assert larger_batch(facts).growing_ns == (500 - call_us) * 1000


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)], run=run_with())
    assert missing_needs(facts, batch_too_small.needs) == [Need.SHAPES]
