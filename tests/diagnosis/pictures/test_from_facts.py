"""What the pictures of a recording show."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pictures.from_facts import COLUMNS, draw
from profkit.findings.pictures import Branch, Mark, MemoryHolder, levels_of
from profkit.run.directory import CallSite
from tests.traces import facts_of, kernel, mark, memory, op, python, runtime, step

NONE = np.zeros(0, dtype=np.int64)


def _row(*runs: tuple[int, int]) -> list[int]:
    """Columns from the number of each level."""
    return [level for level, count in runs for _ in range(count)]


@pytest.fixture
def on_host() -> Facts:
    """Two steps of 1 ms: a forward operator, its backward, and a pause of 250 µs."""
    events = []
    for number, at in ((1, 0), (2, 1000)):
        events += [
            step(number, at, 1000),
            op("aten::mm", at, 500, sequence=number),
            op("autograd::engine::evaluate_function: MmBackward0", at + 500, 250, sequence=number),
            op("MmBackward0", at + 500, 250, sequence=number),
            memory(at + 100, 1000, 4096),
            memory(at + 600, -1000, 4096),
        ]
    return facts_of(events)


@pytest.fixture
def on_device() -> Facts:
    """Two steps of 1 ms, each with a launch and a kernel of 400 µs."""
    events = []
    for number, at in ((5, 0), (6, 1000)):
        events += [
            step(number, at, 1000),
            op("aten::mm", at + 100, 100, external=number),
            runtime("cudaLaunchKernel", at + 100, 100, correlation=number, external=number),
            kernel("gemm", at + 200, 400, correlation=number, external=number),
        ]
    return facts_of(events)


def test_each_step_shows_its_parts_and_place(on_host: Facts) -> None:
    pictures = draw(on_host)
    assert pictures.parts == (
        "backward",
        "operators of the forward pass and others",
        "Python and all else between operators",
    )
    assert pictures.duration_ns == 2_000_000
    first, second = pictures.steps
    assert (first.number, first.duration_ns, first.parts) == (1, 1_000_000, (250_000, 500_000, 250_000))
    assert (first.begin, first.end, second.begin, second.end) == (0, 0.5, 0.5, 1)


def test_a_lane_shows_the_busy_share_of_each_column(on_host: Facts) -> None:
    lanes = {lane.label: lane for lane in draw(on_host).lanes}
    forward, backward = lanes["forward and other operators"], lanes["backward"]
    assert levels_of(forward.levels) == _row((63, 500), (0, 500)) * 2
    assert levels_of(backward.levels) == _row((0, 500), (63, 250), (0, 250)) * 2
    assert (forward.fraction, backward.fraction) == (0.5, 0.25)


def test_even_the_smallest_share_is_drawn() -> None:
    facts = facts_of([step(1, 0, 1_000_000), op("aten::add", 500_000, 1)])
    (lane,) = draw(facts).lanes
    assert len(lane.levels) == COLUMNS
    assert sorted(set(levels_of(lane.levels))) == [0, 1]


def test_host_and_device_have_separate_lanes(on_device: Facts) -> None:
    pictures = draw(on_device)
    assert [lane.label for lane in pictures.lanes] == [
        "device: kernels",
        "forward and other operators",
        "device API calls",
    ]
    assert pictures.lanes[0].fraction == pytest.approx(0.4, abs=0.01)
    assert pictures.of_device


def test_the_memory_curve_has_the_maximum_of_each_column(on_host: Facts) -> None:
    curve = draw(on_host).memory
    assert curve is not None
    assert (curve.least_bytes, curve.peak_bytes) == (0, 1000)
    levels = levels_of(curve.levels)
    assert set(levels) == {0, 63}
    assert levels.count(63) == pytest.approx(1000, abs=4)


def test_with_totals_of_the_device_the_curve_includes_earlier_memory() -> None:
    totals = ((100, 1_000, 71_000), (600, -1_000, 70_000), (1_600, -500, 69_500))
    events = [memory(at, size, 4096, device_type=1, held=held) for at, size, held in totals]
    curve = draw(facts_of([step(1, 0, 1000), step(2, 1000, 1000), op("aten::mul", 50, 900), *events])).memory
    assert curve is not None
    assert (curve.least_bytes, curve.peak_bytes) == (69_500, 71_000)


def test_memory_live_at_the_peak_is_listed_by_line() -> None:
    sites = (CallSite("/w/a.py", 7, "f", "y = x @ w"), CallSite("/w/a.py", 8, "f", "z = y + 1"))
    events = [
        step(1, 0, 1000),
        *(mark(0, 0, 400), op("aten::mm", 0, 390), memory(100, 3000, 64), memory(110, 500, 99), memory(120, -500, 99)),
        *(mark(1, 400, 400), op("aten::add", 400, 390), memory(500, 1000, 128), memory(700, -3000, 64)),
        memory(710, -1000, 128),
    ]
    curve = draw(facts_of(events, callsites=sites)).memory
    assert curve is not None
    assert curve.holders == (
        MemoryHolder("a.py:7", 3000, "y = x @ w"),
        MemoryHolder("a.py:8", 1000, "z = y + 1"),
    )
    assert (curve.peak_bytes, curve.growth_bytes) == (4000, 0)


def test_growth_is_the_memory_that_each_step_leaves_behind() -> None:
    """By turns 1000 and 3000 bytes: the median of three."""
    events = [step(at, 1000 * at, 1000) for at in range(4)] + [op("aten::mm", 1000 * at, 500) for at in range(4)]
    events += [memory(1000 * at + 100, size, 64 * (at + 1)) for at, size in enumerate((1000, 3000, 1000, 1000))]
    curve = draw(facts_of(events)).memory
    assert curve is not None
    assert curve.growth_bytes == 1000
    assert curve.holders == ()


def test_without_memory_events_there_is_no_curve(on_device: Facts) -> None:
    assert draw(on_device).memory is None


def test_a_finding_is_drawn_where_its_events_lie(on_host: Facts) -> None:
    rows = np.flatnonzero(on_host.trace.named("aten::mm"))
    assert draw(on_host, [NONE, rows]).marks == (Mark(1, ((0.0, 0.2505), (0.5, 0.7505))),)


def test_a_finding_with_ten_thousand_events_has_few_spans() -> None:
    events = [step(1, 0, 1_000_000), *(op("aten::add", at, 1) for at in range(0, 1_000_000, 2000))]
    facts = facts_of(events)
    (mark_of_all,) = draw(facts, [np.flatnonzero(facts.trace.named("aten::add"))]).marks
    assert len(mark_of_all.spans) == 64


def test_lines_contain_operators_and_operators_what_they_call() -> None:
    sites = (CallSite("/home/user/train.py", 7, "step", "y = x @ w"),)
    events = [
        step(1, 0, 1000),
        mark(0, 0, 900),
        op("aten::matmul", 0, 800),
        op("aten::mm", 200, 600),
        step(2, 1000, 500),
        op("aten::matmul", 1000, 400),
        op("aten::mm", 1100, 300),
    ]
    assert draw(facts_of(events, callsites=sites)).branches == (
        Branch(0, "train.py:7", 0.0, 1.0, 400_000, "y = x @ w"),
        Branch(1, "aten::matmul", 0.0, 1.0, 400_000),
        Branch(2, "aten::mm", 0.0, 0.75, 300_000),
    )


def test_modules_contain_the_lines_that_work_for_them() -> None:
    """The line of the helper works for the block whose ``forward`` calls it."""
    sites = (
        CallSite("/home/user/train.py", 7, "train", "loss = model(x)"),
        CallSite("/home/user/train.py", 2, "Block.forward", "return mix(x)"),
        CallSite("/home/user/train.py", 4, "mix", "return x @ x"),
    )
    events = [
        step(1, 0, 1000),
        *(mark(0, 0, 900), mark(1, 0, 500), mark(2, 0, 500)),
        *(op("aten::mm", 0, 300), op("aten::mean", 600, 100)),
        step(2, 1000, 1000),
        *(op("aten::mm", 1000, 300), op("aten::mean", 1600, 100)),
    ]
    pictures = draw(facts_of(events, callsites=sites))
    assert pictures.levels == ("module", "line", "operator", "kernel")
    assert [(one.depth, one.label, one.fraction) for one in pictures.branches] == [
        *((0, "Block", 0.75), (0, "outside of modules", 0.25)),
        *((1, "train.py:4", 0.75), (1, "train.py:7", 0.25)),
        *((2, "aten::mm", 0.75), (2, "aten::mean", 0.25)),
    ]


def test_modules_are_named_by_recorded_calls_and_unknown_lines_are_left_out() -> None:
    events = [
        step(1, 0, 1000),
        *(python("nn.Module: Net_0", 0, 800), python("nn.Module: Linear_3", 0, 300), op("aten::linear", 10, 100)),
        *(python("nn.Module: Linear_4", 400, 300), op("aten::linear", 410, 200), op("aten::relu", 720, 50)),
    ]
    pictures = draw(facts_of(events))
    assert pictures.levels == ("module", "operator", "kernel")
    assert [(one.depth, one.label, one.time_ns) for one in pictures.branches] == [
        *((0, "Linear", 300_000), (0, "Net", 50_000)),
        *((1, "aten::linear", 300_000), (1, "aten::relu", 50_000)),
    ]


def test_a_recording_without_modules_has_no_level_for_them(on_host: Facts) -> None:
    assert draw(on_host).levels == ("line", "operator", "kernel")


def test_device_time_is_assigned_to_operators_and_their_kernels(on_device: Facts) -> None:
    assert draw(on_device).branches == (
        Branch(0, "no line recorded", 0.0, 1.0, 800_000),
        Branch(1, "aten::mm", 0.0, 1.0, 800_000),
        Branch(2, "gemm", 0.0, 1.0, 800_000),
    )


def test_the_picture_of_a_long_recording_is_as_small_as_of_a_short_one() -> None:
    events = [event for at in range(1000) for event in (step(at, 1000 * at, 1000), op("aten::mm", 1000 * at, 500))]
    pictures = draw(facts_of(events))
    assert len(pictures.steps) == 128
    drawn = [one for one in pictures.steps if one.end > one.begin]
    assert (len(drawn), pictures.duration_ns) == (16, 16_000_000)


def test_an_empty_step_has_an_empty_picture() -> None:
    pictures = draw(facts_of([step(1, 0, 1000)]))
    assert (pictures.lanes, pictures.branches, pictures.marks) == ((), (), ())


def test_sizes_of_a_damaged_trace_that_no_integer_holds_together_are_drawn_as_the_largest() -> None:
    sites = (CallSite("/w/a.py", 7, "f", "y = x @ w"),)
    huge = (1 << 62) - 1
    events = [step(1, 0, 1000), mark(0, 0, 900), op("aten::mm", 0, 890)]
    events += [memory(100 + number, huge, 64 * number) for number in range(1, 5)]
    picture = draw(facts_of(events, callsites=sites)).memory
    assert picture is None or all(0 < holder.bytes <= 1 << 62 for holder in picture.holders)
