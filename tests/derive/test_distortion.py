"""How much of a step was the cost of recording, and where in the step it lay."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.core.marks import GC_AUTOMATIC, GC_MARK
from profkit.derive.steps import distortion
from profkit.derive.steps.edges import water_level
from profkit.run.directory import Run
from tests.traces import annotation, facts_of, kernel, mark, memory, op, pause, python, runtime, step


def _overhead(events, *reference_us: int) -> list[tuple[int, int]]:
    facts = facts_of(events, run=Run(reference_step_ns=tuple(1000 * time for time in reference_us)))
    found = facts.overhead.where
    return [(int(s), int(e)) for s, e in zip(found.start_ns, found.end_ns, strict=True)]


def test_the_difference_is_spread_evenly_over_starts_and_ends_of_events():
    """Between two operators lie an end and a start, so the time there takes twice the share."""
    events = [step(0, 0, 100), op("aten::a", 20, 10), op("aten::b", 60, 10)]
    assert _overhead(events, 90) == [(17_500, 20_000), (55_000, 60_000), (97_500, 100_000)]


def test_an_edge_takes_no_more_than_the_time_beside_it():
    events = [step(0, 0, 100), op("aten::a", 20, 20), op("aten::inner", 22, 10), op("aten::b", 60, 10)]
    assert _overhead(events, 84) == [(17_200, 22_000), (37_200, 40_000), (54_400, 60_000), (97_200, 100_000)]


def test_an_edge_takes_no_more_than_recording_an_event_can_cost():
    """The machine was busy: the step became 80 µs longer with only four edges."""
    events = [step(0, 0, 100), op("aten::a", 20, 10)]
    assert _overhead(events, 20) == [(15_000, 20_000), (95_000, 100_000)]


def test_time_that_events_cannot_have_cost_is_kept():
    assert _overhead([step(0, 0, 100), op("aten::a", 2, 98)], 50) == [(0, 2_000)]


def test_the_median_step_without_the_profiler_is_what_counts():
    events = [step(0, 0, 100), op("aten::a", 20, 10)]
    assert _overhead(events, 95, 20, 400) == [(17_500, 20_000), (97_500, 100_000)]


@pytest.mark.parametrize("reference_us", [(), (100,), (130,)])
def test_without_a_difference_nothing_was_added(reference_us):
    assert _overhead([step(0, 0, 100), op("aten::a", 20, 10)], *reference_us) == []


def test_unmeasured_steps_and_pauses_are_left_as_they_are():
    events = [step(0, 0, 100), op("aten::a", 20, 10), pause(40, 50)]
    assert _overhead(events, 40) == [(15_000, 20_000), (95_000, 100_000)]


@pytest.mark.parametrize(
    ("collection", "is_located", "reference_us", "is_taken"),
    [
        (f"{GC_MARK}2{GC_AUTOMATIC}", True, 50, True),
        (f"{GC_MARK}2", True, 50, False),
        (f"{GC_MARK}2{GC_AUTOMATIC}", False, 50, False),
        (f"{GC_MARK}2{GC_AUTOMATIC}", True, 70, False),
    ],
)
def test_pythons_own_collections_come_sooner_while_lines_are_marked(collection, is_located, reference_us, is_taken):
    """Not those that the program asks for, and none that takes longer than the whole difference."""
    marks = [mark(0, 1, 99)] if is_located else []
    found = _overhead([step(0, 0, 100), *marks, annotation(collection, 40, 35)], reference_us)
    assert any(start <= 40_000 and end == 75_000 for start, end in found) == is_taken


def _with_faults(events, reference_us, **counted) -> list[tuple[int, int]]:
    facts = facts_of(events, run=Run(reference_step_ns=(1000 * reference_us,), **counted))
    return [(int(s), int(e)) for s, e in zip(facts.overhead.where.start_ns, facts.overhead.where.end_ns, strict=True)]


GROWING = [
    step(0, 0, 100),
    op("aten::a", 20, 30),
    memory(25, 30_720, 64),
    op("aten::b", 60, 30),
    memory(61, 10_240, 128),
]
"""Ten pages: seven and a half, and two and a half."""


def test_pages_needed_only_by_the_recording_are_taken_from_allocating_operators():
    """Ten pages at 800 ns, divided by allocated bytes, make up the whole difference of 8 µs."""
    counted = {"reference_step_faults": (2,), "measured_step_faults": (12,), "page_fault_ns": 800}
    assert _with_faults(GROWING, 92, **counted) == [(44_000, 50_000), (88_000, 90_000)]


def test_memory_that_the_step_has_freed_is_no_new_page():
    """The second operator gets the first one's memory; of ten pages at 800 ns the first gets all that it has room
    for, and a third one, which holds more than was ever held, the rest."""
    events = [step(0, 0, 100), op("aten::a", 20, 10), memory(21, 40_960, 64), memory(29, -40_960, 64)]
    again = [op("aten::b", 40, 10), memory(41, 40_960, 64)]
    counted = {"reference_step_faults": (0,), "measured_step_faults": (10,), "page_fault_ns": 800}
    assert _with_faults([*events, *again], 92, **counted) == [(22_000, 30_000)]
    more = [op("aten::c", 60, 10), memory(61, 20_480, 128)]
    counted["measured_step_faults"] = (15,)
    assert _with_faults([*events, *again, *more], 88, **counted) == [(22_000, 30_000), (66_000, 70_000)]


def test_more_pages_than_what_a_step_holds_has_are_divided_by_bytes():
    """Of 16 pages ten are those of the first operator; of the other six each gets what is left to it of its own ten."""
    events = [step(0, 0, 100), op("aten::a", 20, 10), memory(21, 40_960, 64), memory(29, -40_960, 64)]
    again = [op("aten::b", 40, 10), memory(41, 40_960, 64)]
    counted = {"reference_step_faults": (0,), "measured_step_faults": (16,), "page_fault_ns": 800}
    found = _with_faults([*events, *again], 87.2, **counted)
    assert found == [(22_000, 30_000), (45_200, 50_000)]


def test_pages_beyond_an_operators_bytes_are_the_profilers_own():
    """100 pages were counted, but the operators' results have ten; the edges take the rest of 12 µs."""
    counted = {"reference_step_faults": (0,), "measured_step_faults": (100,), "page_fault_ns": 800}
    found = _with_faults(GROWING, 88, **counted)
    assert (44_000, 50_000) in [(end - 6_000, end) for _, end in found]
    assert sum(end - start for start, end in found) == pytest.approx(12_000, abs=8)


def test_pages_cost_at_most_the_difference_and_the_time_of_allocating_operators():
    counted = {"reference_step_faults": (0,), "measured_step_faults": (1000,), "page_fault_ns": 1000}
    assert _with_faults(GROWING, 96, **counted) == [(47_000, 50_000), (89_000, 90_000)]
    most = [(15_000, 20_000), (25_000, 60_000), (61_000, 90_000), (95_000, 100_000)]
    assert _with_faults(GROWING, 1, **{**counted, "page_fault_ns": 20_000}) == most


@pytest.mark.parametrize(
    "counted",
    [
        {"reference_step_faults": (12,), "measured_step_faults": (12,), "page_fault_ns": 800},
        {"reference_step_faults": (12,), "measured_step_faults": (2,), "page_fault_ns": 800},
        {"reference_step_faults": (2,), "measured_step_faults": (12,)},
        {"page_fault_ns": 800},
    ],
)
def test_without_more_pages_or_a_price_per_page_the_edges_take_everything(counted):
    assert _with_faults(GROWING, 92, **counted) == _with_faults(GROWING, 92)


@pytest.mark.parametrize("wanted", [0.0, 1.0, 7.5, 30.0, 59.0, 60.0, 1000.0])
def test_the_level_distributes_the_wanted_time_to_the_nanosecond(wanted):
    room, weight = np.array([30, 1, 10, 20], dtype=np.int64), np.array([2, 1, 1, 2], dtype=np.int64)
    filled = int(np.minimum(room, weight * water_level(room, weight, wanted)).sum())
    assert min(wanted, 61.0) - weight.sum() < filled <= max(wanted, 0.0)


def _many(each_us: float, kernel_us: float, events: int = 1_000, stacks: bool = False, **top_level):
    """Successive operators, each ``each_us`` after the one before, and one kernel, launched at the beginning."""
    step_us = each_us * events
    found = [
        step(0, 0, step_us),
        runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1),
        kernel("mm", 1, kernel_us, correlation=1),
    ]
    make, name = (python, "f.py(1): f") if stacks else (op, "aten::add")
    repeated = [make(name, each_us * i + 1, each_us / 2) for i in range(events - 1)]
    return facts_of([op("aten::mm", 0.3, 0.1), *found, *repeated], **top_level)


@pytest.mark.parametrize("top_level", [{}, {"record_shapes": 1}, {"record_shapes": 0}])
def test_without_unprofiled_steps_a_share_of_the_time_between_events_is_the_recordings(top_level):
    """A thousand operators in 4 ms: 0.45 are left, whatever else was recorded with them."""
    assert _many(4, 100, **top_level).overhead.total_ns == pytest.approx(0.55 * 4_000_000, rel=0.01)


def test_of_the_time_between_python_frames_less_is_left():
    assert _many(4, 100, stacks=True).overhead.total_ns == pytest.approx(0.85 * 4_000_000, rel=0.01)


def test_frames_and_calls_of_the_runtime_are_told_apart():
    """Each frame of 10 µs holds a call of 6 in its middle: the 2 µs before and after it are the call's."""
    events = [step(0, 0, 10_000), kernel("mm", 1, 100, correlation=1), op("aten::mm", 0, 0.1)]
    for n in range(1_000):
        events += [python("f.py(1): f", 10 * n, 10), runtime("cudaLaunchKernel", 10 * n + 2, 6, correlation=n + 1)]
    assert facts_of(events).overhead.total_ns == pytest.approx(0.55 * 10_000_000, rel=0.01)


def test_of_a_long_stretch_only_the_end_is_slowed():
    """A thousand operators in 2 ms; until one more begins after another millisecond, 40 µs count."""
    events = [step(0, 0, 3_001), runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1), op("aten::mm", 0.05, 0.2)]
    events += [kernel("mm", 1, 100, correlation=1), *(op("aten::add", 2 * i + 1, 1) for i in range(1_000))]
    facts = facts_of([*events, op("aten::add", 3_000, 1)])
    assert facts.overhead.total_ns == pytest.approx(0.55 * 2_040_000, rel=0.002)


@pytest.mark.parametrize("stacks", [False, True])
def test_no_event_costs_more_than_four_microseconds(stacks):
    """Operators that compute, or a slow machine: the share would be 11 µs of each 20."""
    assert _many(20, 100, stacks=stacks).overhead.total_ns == pytest.approx(4_000 * 1_000, rel=0.01)


@pytest.mark.parametrize(
    ("events", "stacks", "is_estimated"), [(997, False, False), (998, False, True), (97, True, False), (98, True, True)]
)
def test_with_few_events_nothing_is_estimated(events, stacks, is_estimated):
    """With the step's range, the launch and the operator around it there are two more."""
    assert (_many(4, 100, events=events, stacks=stacks).overhead.total_ns > 0) is is_estimated


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 1000])
def test_edges_in_batches_are_those_of_all_events_at_once(monkeypatch, batch):
    """Events begin and end at the same times, and some stay open over many batches."""
    events = [step(0, 0, 400), op("outer", 0, 300)]
    events += [op(f"inner {n}", 10 * (n // 2), 10 - 5 * (n % 2)) for n in range(40)]
    facts = facts_of([*events, op("other", 40, 20, tid=2), op("another", 60, 5, tid=2)])
    trace, tree = facts.trace, facts.tree
    for lane in (0, 1):
        rows = np.flatnonzero(trace.events.lane == lane)
        times = np.concatenate([trace.events.start_ns[rows], tree.end_ns[rows]])
        order = np.argsort(times, kind="stable")
        monkeypatch.setattr(distortion, "BATCH", batch)
        first, *others = distortion._edges(trace.events, tree, rows)
        for column, whole in zip((0, 1), (times, np.tile(trace.events.category[rows], 2)), strict=True):
            found = np.concatenate([first[column], *(part[column][1:] for part in others)])
            assert found.tolist() == whole[order].tolist()
        ends = [part[0][-1] for part in (first, *others)]
        assert [part[0][0] for part in others] == ends[:-1], "each begins with the last edge before it"


def test_a_step_whose_lines_were_marked_shows_nothing_of_what_recording_adds():
    events = [step(0, 0, 10_000), runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1), op("aten::mm", 0.05, 0.2)]
    events += [kernel("mm", 1, 100, correlation=1), *(op("aten::add", 10 * i + 1, 5) for i in range(999))]
    assert facts_of(events).overhead.total_ns > 0
    assert facts_of([*events, mark(1, 0.5, 0.2)]).overhead.total_ns == 0


def test_without_a_device_nothing_is_estimated():
    facts = facts_of([step(0, 0, 10_000), *(op("aten::add", 10 * i, 5) for i in range(1_000))])
    assert facts.overhead.total_ns == 0


def test_waits_for_the_device_are_not_a_cost_of_recording():
    waiting = _many(10, 100)
    longer = facts_of(
        [
            step(0, 0, 110_000),
            runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1),
            kernel("mm", 1, 109_000, correlation=1),
            op("aten::mm", 0.3, 0.1),
            *(op("aten::add", 10 * i + 1, 5) for i in range(999)),
            runtime("cudaDeviceSynchronize", 10_000, 99_500),
        ]
    )
    assert longer.overhead.total_ns == pytest.approx(waiting.overhead.total_ns, rel=0.01)


def _marked(reference_us: int, *, by_device: bool = True, others: int = 0, silent_us: float = 0, wait_us: float = 0):
    """Ten operators of 50 µs, one every 100, in a step whose lines are marked; then nothing, and a wait."""
    length_us = 1_000 + silent_us + wait_us
    events = [step(0, 0, length_us), mark(1, 0.5, 0.2), runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1)]
    events += [kernel("mm", 1, 10, correlation=1), *(op("aten::add", 100 * i + 50, 50) for i in range(10))]
    events += [runtime("cudaDeviceSynchronize", 1_000 + silent_us, wait_us)] if wait_us else []
    events += [step(1, length_us, 200), op("aten::add", length_us + 10, 5)] * (others > 0)
    timed_ns = (1_000 * reference_us,)
    run = Run(reference_step_ns=timed_ns, reference_step_device_ns=timed_ns if by_device else ())
    return facts_of(events, run=run)


def test_beside_a_device_a_host_that_marks_all_lines_is_shrunk_to_a_plain_step():
    facts = _marked(300)
    assert facts.overhead.total_ns == facts.marks_added.total_ns == pytest.approx(700_000, rel=0.001)
    assert facts.overhead.share == pytest.approx(0.7, rel=0.001)


@pytest.mark.parametrize(
    "known", [{"reference_us": 1_000}, {"reference_us": 100, "by_device": False}, {"reference_us": 100, "others": 1}]
)
def test_marks_are_not_estimated_without_need_or_evidence(known):
    """The step is no longer than a plain one, the host alone timed these, or a step without marks was recorded."""
    assert _marked(**known).marks_added.total_ns == 0


def test_of_what_no_event_shows_marks_slow_the_end_only_while_that_explains_the_step():
    """A computation of 800 µs in the program keeps 550, unless the plain step has no room for it."""
    assert _marked(900, silent_us=800, wait_us=1).marks_added.where.total_ns == pytest.approx(1_250_000, rel=0.001)
    assert _marked(100, silent_us=800, wait_us=1).marks_added.where.total_ns == pytest.approx(1_800_000, rel=0.001)


def test_marks_do_not_lengthen_waits_for_the_device():
    waited = _marked(900, wait_us=600)
    assert waited.marks_added.where.total_ns == pytest.approx(1_000_000, rel=0.001)
    assert waited.marks_added.total_ns == pytest.approx(700_000, rel=0.002)


def _waiting(kernel_us: float, step_us: float, reference_us: float, detached: bool = True):
    """A thousand operators in 10 ms, then a wait for a kernel that began at once, until the end of the step."""
    events = [
        step(0, 0, step_us),
        runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1),
        op("aten::mm", 0.05, 0.2),
        kernel("mm", 1, kernel_us, correlation=1),
        *(op("aten::add", 10 * i + 1, 5) for i in range(999)),
        runtime("cudaDeviceSynchronize", 10_000, step_us - 10_000),
    ]
    timed_ns = (round(1_000 * reference_us),)
    return facts_of(events, run=Run(reference_step_ns=timed_ns, reference_step_device_ns=timed_ns if detached else ()))


def test_a_wait_for_a_busy_device_hides_the_hosts_cost_of_recording():
    """The device sets the length of the step, so recording does not change it: 4 µs an event are hidden."""
    assert _waiting(19_900, 20_000, 20_000).overhead.total_ns == pytest.approx(4_000_000, rel=0.01)


def test_a_wait_hides_at_most_its_own_length():
    assert _waiting(10_900, 11_000, 11_000).overhead.total_ns == pytest.approx(1_000_000, rel=0.01)


def test_a_wait_for_a_device_that_idles_hides_nothing():
    """The host sets the length of these steps, so it shows what recording added: nothing, or 1 ms."""
    assert _waiting(17_000, 20_000, 20_000).overhead.total_ns == 0
    assert _waiting(17_000, 20_000, 19_000).overhead.total_ns == pytest.approx(1_000_000, rel=0.01)


def test_steps_timed_while_cupti_stood_by_show_too_little_of_what_recording_added():
    """Of 10 ms of work, up to two sevenths were CUPTI's: it slows a launch 1.4 times at most."""
    found = _waiting(17_000, 20_000, 20_000, detached=False)
    assert found.overhead.total_ns == pytest.approx(2 / 7 * 10_000_000, rel=0.01)
