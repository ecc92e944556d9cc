"""The replay: what it reproduces, and what an edit is worth, in exact numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.facts import Facts
from profkit.run import Run
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_spans, shrink_work, unblock
from profkit.savings.simulate import Replay, predict_saving, replay
from tests.traces import annotation, facts_of, kernel, mark, op, pause, rows_named, runtime, step

SYNC = "cudaStreamSynchronize"
LAUNCH = "cudaLaunchKernel"


def _rows(facts: Facts, *names: str) -> np.ndarray:
    return np.array(rows_named(facts.trace, *names), dtype=np.int64)


def _replay_us(facts: Facts, edit: Edit) -> tuple[float, float]:
    result = replay(facts, edit)
    return result.recorded_ns / 1000, result.edited_ns / 1000


def _ns(*values_us: float) -> np.ndarray:
    return np.array(values_us, dtype=np.int64) * 1000


# Without a device: one timeline.


def _host_steps() -> Facts:
    """Two steps of 100 us, each with `slow` (20 us, of which `inner` 10) and `quick` (10 us)."""
    events = []
    for n in range(2):
        at = 100 * n
        events += [step(n, at, 100), op("slow", at + 10, 20), op("inner", at + 15, 10), op("quick", at + 50, 10)]
    return facts_of([*events, op("elsewhere", 0, 200, tid=2)])


def test_without_an_edit_nothing_changes():
    assert _replay_us(_host_steps(), Edit()) == (200, 200)


@pytest.mark.parametrize(
    ("names", "edited"),
    [(["slow"], 160), (["inner"], 180), (["quick"], 180), (["slow", "inner"], 160), (["slow", "quick"], 140),
     (["elsewhere"], 200)],
)  # fmt: skip
def test_a_removed_host_event_gives_back_its_length_once(names, edited):
    facts = _host_steps()
    assert _replay_us(facts, remove(_rows(facts, *names))) == (200, edited)


def test_a_shortened_event_gives_back_the_rest():
    facts = _host_steps()
    assert _replay_us(facts, shrink(_rows(facts, "slow"), _ns(5, 30), 0.1)) == (200, 185)


def test_a_stretch_of_the_main_thread_can_be_shortened():
    facts = _host_steps()
    assert _replay_us(facts, shrink_spans(_ns(10, 110), _ns(60, 160), _ns(20, 70), 0.1)) == (200, 170)


def test_edits_that_overlap_are_not_counted_twice():
    facts = _host_steps()
    slow, inner = remove(_rows(facts, "slow")), remove(_rows(facts, "inner"))
    span = shrink_spans(_ns(10), _ns(60), _ns(0), 0.3)
    assert _replay_us(facts, combine([slow, inner, slow])) == (200, 160)
    assert _replay_us(facts, combine([slow, inner, span])) == (200, 130)
    assert combine([slow, span]).uncertainty == 0.3


def test_only_measured_steps_count():
    """The first of these steps is cold, the last located."""
    lengths = [200, 100, 100, 150]
    starts = [0, 200, 300, 400]
    events = [step(n, start, length) for n, (start, length) in enumerate(zip(starts, lengths, strict=True))]
    events += [op("slow", start + 10, 20) for start in starts]
    facts = facts_of([*events, mark(1, 405, 30), op("slow", 560, 20)])
    assert facts.steps.measured.tolist() == [False, True, True, False]
    assert _replay_us(facts, remove(_rows(facts, "slow"))) == (200, 160)


def test_what_lies_between_measured_steps_is_left_out():
    steps = [step(0, 0, 100), step(1, 120, 100), step(2, 220, 300), step(3, 520, 100)]
    facts = facts_of([*steps, mark(1, 230, 9)])
    assert facts.steps.measured.tolist() == [True, True, False, True]
    spans = shrink_spans(_ns(90, 500), _ns(130, 540), _ns(0, 0), 0.1)
    assert _replay_us(facts, spans) == (300, 300 - 10 - 10 - 20)


def test_profkits_pauses_inside_the_window_are_left_out():
    events = [annotation("Optimizer.step#SGD.step", at, 1) for at in (0, 100, 200)]
    facts = facts_of([*events, op("slow", 40, 50), pause(50, 20)])
    assert _replay_us(facts, remove(_rows(facts, "slow"))) == (180, 150)


def test_the_backward_thread_takes_turns_with_the_main_one():
    facts = facts_of([step(0, 0, 100), op("autograd::engine::evaluate_function: MulBackward0", 20, 60, tid=2),
                      op("aten::mul", 30, 10, tid=2), op("aten::mul", 40, 10, tid=3)])  # fmt: skip
    assert _replay_us(facts, remove(_rows(facts, "aten::mul"))) == (100, 90)


# With a device: what the host does is worth something only where the device waits for it.


def _launch_bound() -> Facts:
    """Each kernel takes 5 us and starts as soon as it is launched, every 50 us."""
    events = [step(0, 0, 200)]
    for i in range(4):
        at = 50 * i
        events += [op("python_like", at + 5, 30), op("aten::mul", at + 36, 10)]
        events += [runtime(LAUNCH, at + 38, 4, correlation=i + 1), kernel("mul", at + 43, 5, correlation=i + 1)]
    return facts_of(events)


def _device_bound() -> Facts:
    """Four kernels of 100 us, all launched in the first 100 us, then a wait for the last."""
    events = [step(0, 0, 430), op("aten::item", 100, 320), runtime(SYNC, 105, 310)]
    for i in range(4):
        events += [op("python_like", 20 * i + 2, 8), runtime(LAUNCH, 20 * i + 10, 4, correlation=i + 1),
                   kernel("mul", 100 * i + 14, 100, correlation=i + 1)]  # fmt: skip
    return facts_of(events)


def test_an_exposed_host_event_is_worth_its_length():
    facts = _launch_bound()
    assert _replay_us(facts, Edit()) == (200, 200)
    assert _replay_us(facts, remove(_rows(facts, "python_like"))) == (200, 80)


def test_a_host_event_hidden_behind_a_busy_device_is_worth_nothing():
    facts = _device_bound()
    assert _replay_us(facts, Edit()) == (430, 430)
    later = _rows(facts, "python_like")[1:]
    assert _replay_us(facts, remove(later)) == (430, 430)


def test_what_delays_the_first_launch_is_not_hidden():
    facts = _device_bound()
    assert _replay_us(facts, remove(_rows(facts, "python_like")[:1])) == (430, 422)


def test_a_shorter_kernel_is_worth_its_gain_only_where_the_device_is_the_bottleneck():
    bound = _device_bound()
    assert _replay_us(bound, shrink_work(bound.launches.work, _ns(40, 40, 40, 40), 0.1)) == (430, 430 - 240)
    launched = _launch_bound()
    assert _replay_us(launched, shrink_work(launched.launches.work, _ns(1, 1, 1, 1), 0.1)) == (200, 200)


def test_removed_work_takes_its_place_in_the_queue_with_it():
    facts = _device_bound()
    nothing = np.zeros(0, dtype=np.int64)
    assert _replay_us(facts, remove(nothing, work=facts.launches.work[1:3])) == (430, 230)


def test_a_piece_of_work_named_twice_is_shortened_once():
    facts = _device_bound()
    work = facts.launches.work[:1]
    edits = [shrink_work(work, _ns(60), 0.1), shrink_work(work, _ns(30), 0.1)]
    assert _replay_us(facts, combine(edits)) == (430, 360)


def _reading() -> Facts:
    """A read of a number: the host waits for one kernel and launches the next one 10 us after."""
    return facts_of([
        step(0, 0, 200), runtime(LAUNCH, 5, 5, correlation=1), kernel("first", 20, 100, correlation=1),
        op("aten::item", 28, 99), runtime(SYNC, 30, 95), runtime(LAUNCH, 135, 5, correlation=2),
        kernel("second", 140, 10, correlation=2),
    ])  # fmt: skip


def test_going_on_instead_of_waiting_gives_back_what_the_device_then_does_earlier():
    """The second kernel would be launched at 40 and start when the first ends, with its 5 us of launching."""
    facts = _reading()
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (200, 135)


def test_a_wait_inside_a_removed_event_holds_nobody_up():
    facts = _reading()
    assert _replay_us(facts, remove(_rows(facts, "aten::item"))) == (200, 135)


def test_removing_what_stands_before_a_wait_only_lengthens_it():
    facts = facts_of([
        step(0, 0, 130), runtime(LAUNCH, 5, 5, correlation=1), kernel("first", 10, 100, correlation=1),
        op("slow", 15, 50), runtime(SYNC, 70, 45),
    ])  # fmt: skip
    assert _replay_us(facts, remove(_rows(facts, "slow"))) == (130, 130)
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(20), 0.1)) == (130, 85)


def test_a_wait_that_waited_for_nothing_is_host_time():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 2), kernel("k", 5, 5), runtime(SYNC, 50, 20)])
    assert _replay_us(facts, remove(_rows(facts, SYNC))) == (100, 80)
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (100, 80)


def test_a_wait_of_a_helper_thread_does_not_hold_the_main_thread_up():
    facts = facts_of([
        step(0, 0, 100), op("aten::mm", 1, 2), runtime(LAUNCH, 5, 5, correlation=1),
        kernel("k", 12, 60, correlation=1), runtime(SYNC, 20, 55, tid=9), op("slow", 80, 10),
    ])  # fmt: skip
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(10), 0.1)) == (100, 100)
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (100, 100)


def test_two_streams_run_side_by_side():
    facts = facts_of([
        step(0, 0, 50), op("aten::mm", 1, 2),
        runtime(LAUNCH, 5, 2, correlation=1), runtime(LAUNCH, 8, 2, correlation=2),
        kernel("long", 10, 90, correlation=1), kernel("short", 12, 40, correlation=2, stream=20),
    ])  # fmt: skip
    assert _replay_us(facts, Edit()) == (100, 100)
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(20, 40), 0.1)) == (100, 52)


def test_a_wait_that_ends_with_the_shorter_of_two_overlapping_pieces_is_reproduced():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 2), kernel("long", 10, 40), kernel("short", 20, 10),
                      runtime(SYNC, 25, 6), op("slow", 60, 5)])  # fmt: skip
    assert _replay_us(facts, Edit()) == (100, 100)
    assert _replay_us(facts, remove(_rows(facts, "slow"))) == (100, 95)


def test_work_of_no_length_that_ends_a_wait_is_reproduced():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 2), runtime(SYNC, 10, 10), kernel("empty", 20, 0)])
    assert _replay_us(facts, Edit()) == (100, 100)


def test_work_that_seems_to_start_before_its_launch_keeps_its_whole_length():
    facts = facts_of([step(0, 0, 20), op("aten::mm", 1, 2), runtime(LAUNCH, 18, 1, correlation=1),
                      kernel("early", 10, 30, correlation=1)])  # fmt: skip
    assert _replay_us(facts, Edit()) == (40, 40)
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(25), 0.1)) == (40, 35)


def _behind() -> Facts:
    """The device is 50 us behind the host all the time: kernels of 100 us, one a step; the first step is located."""
    events = [mark(1, 1, 2), op("aten::mm", 1, 1)]
    for n in range(3):
        at = 100 * n
        events += [step(n, at, 100), op("before", at + 3, 20), runtime(LAUNCH, at + 25, 5, correlation=n + 1),
                   kernel("mm", at + 50, 100, correlation=n + 1)]  # fmt: skip
    return facts_of(events)


def test_a_device_that_is_always_behind_by_the_same_does_not_make_the_window_longer():
    assert _replay_us(_behind(), Edit()) == (200, 200)


def test_work_of_the_step_before_still_keeps_the_device_busy():
    facts = _behind()
    assert _replay_us(facts, remove(_rows(facts, "before"))) == (200, 200)
    assert _replay_us(facts, shrink_work(facts.launches.work[:1], _ns(10), 0.1)) == (200, 200)


def test_work_launched_before_the_recording_keeps_the_device_busy():
    facts = facts_of([
        op("before", 0, 20), runtime(LAUNCH, 25, 5, correlation=1), kernel("mm", 5_000, 100, correlation=1),
        runtime(SYNC, 40, 5_060),
    ])  # fmt: skip
    assert _replay_us(facts, remove(_rows(facts, "before"))) == (5_100, 5_100)


def test_the_profilers_own_wait_is_not_replayed():
    facts = facts_of([op("aten::mm", 0, 9), runtime(LAUNCH, 2, 2, correlation=1), kernel("mm", 5, 40, correlation=1),
                      runtime("cudaDeviceSynchronize", 20, 30)])  # fmt: skip
    assert facts.waits.own.tolist() == [True]
    assert _replay_us(facts, unblock(facts.waits.rows)) == (50, 50)


def test_without_the_devices_side_a_wait_has_no_price():
    facts = facts_of([step(0, 0, 100), op("aten::item", 5, 50), runtime(SYNC, 10, 40)])
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (100, 100)


# What is told of it.


def test_a_saving_is_stated_per_step_with_a_range():
    events = [op("slow", 100 * n + 10, 20) for n in range(5)]
    facts = facts_of([*events, *(step(n, 100 * n, length) for n, length in enumerate((100, 100, 100, 100, 120)))])
    saving = predict_saving(facts, remove(_rows(facts, "slow"), uncertainty=0.25), size_bytes=64)
    assert saving.fraction == pytest.approx(100 / 520, abs=1e-6)
    assert saving.time_ns_per_step == int(100_000 * 100 / 520)
    assert (saving.low, saving.high) == (pytest.approx(0.75 * 100 / 520, abs=1e-6), pytest.approx(125 / 520, abs=1e-6))
    assert saving.bytes == 64


def test_the_spread_of_the_steps_widens_the_range():
    facts = facts_of([step(0, 0, 100), step(1, 100, 60), step(2, 160, 140), op("slow", 10, 30)])
    saving = predict_saving(facts, remove(_rows(facts, "slow"), uncertainty=0.1))
    assert saving.fraction == 0.1
    assert (saving.low, saving.high) == (pytest.approx(0.05), pytest.approx(0.15))


def test_a_saving_is_on_the_scale_of_the_unprofiled_steps():
    """Of 20 us 4 us came with the recording: what takes 10 us of the 16 us that are left gives back five eighths."""
    events = [step(0, 0, 20), op("slow", 6, 10), step(1, 20, 20), op("slow", 26, 10)]
    facts = facts_of(events, run=Run(reference_step_ns=(16_000, 14_000, 32_000)))
    saving = predict_saving(facts, remove(_rows(facts, "slow")))
    assert saving.fraction == pytest.approx(5 / 8)
    assert saving.time_ns_per_step == 10_000


def test_steps_that_were_recorded_on_a_busy_machine_keep_the_shares_of_what_they_did():
    """They took twice as long as those before, of which recording itself can account for 10 us at most."""
    events = [step(0, 0, 2000), op("slow", 600, 1000)]
    facts = facts_of(events, run=Run(reference_step_ns=(1_000_000,)))
    saving = predict_saving(facts, remove(_rows(facts, "slow")))
    assert saving.fraction == pytest.approx(1000 / 1990, abs=1e-4)
    assert saving.time_ns_per_step == pytest.approx(1_000_000 * 1000 / 1990, rel=1e-4)


def test_what_holds_more_events_was_distorted_more():
    """Both halves seem to take 50 us; one holds ten operators with 4 us of recording before each, the other one."""
    many = [op("small", 4 + 5 * i, 1) for i in range(10)]
    facts = facts_of([step(0, 0, 110), *many, op("large", 58, 50)], run=Run(reference_step_ns=(66_000,)))
    small, large = (predict_saving(facts, remove(_rows(facts, name))) for name in ("small", "large"))
    assert large.time_ns_per_step == 50_000
    assert small.time_ns_per_step == 10_000


def test_a_saving_is_never_negative_and_never_more_than_the_step():
    assert Replay(100, 130).fraction == 0.0
    assert Replay(0, 0).fraction == 0.0
    facts = facts_of([step(0, 0, 100), op("slow", 0, 100)])
    saving = predict_saving(facts, remove(_rows(facts, "slow"), uncertainty=3.0))
    assert (saving.low, saving.fraction, saving.high) == (0.0, 1.0, 1.0)


# Any recording.

_LENGTH = st.integers(0, 60)
_WORK = st.tuples(st.integers(0, 280), st.integers(0, 30), _LENGTH, st.sampled_from([7, 20]))
_HOST = st.tuples(st.sampled_from(["slow", SYNC, "cudaMemcpy", "late"]), st.integers(0, 290), _LENGTH)


@st.composite
def _recordings(draw: st.DrawFn) -> Facts:
    """Launches, overlapping kernels that may start before their launch, waits, work of unknown launch."""
    cuts = sorted(draw(st.lists(st.integers(1, 280), min_size=1, max_size=3, unique=True)))
    steps = [step(n, s, e - s) for n, (s, e) in enumerate(zip([0, *cuts], [*cuts, 300], strict=True))]
    events = [*steps, op("aten::mm", 0, 1)]
    for i, (at, delay, length, stream) in enumerate(draw(st.lists(_WORK, min_size=1, max_size=9))):
        launched = draw(st.booleans())
        events += [runtime(LAUNCH, at, 3, correlation=i + 1)] if launched else []
        events.append(kernel("k", max(1, at + delay - 5), length, correlation=i + 1, stream=stream))
    for name, at, length in draw(st.lists(_HOST, max_size=6)):
        events.append(op(name, at, length) if name in ("slow", "late") else runtime(name, at, length))
    if draw(st.booleans()):
        events.append(mark(1, draw(st.integers(0, 299)), 1))
    return facts_of(events)


@given(_recordings())
def test_any_recording_is_reproduced_exactly(facts):
    result = replay(facts, Edit())
    assert result.edited_ns == result.recorded_ns
    assert result.recorded_ns > 0


@given(_recordings())
def test_host_edits_save_no_more_than_what_they_take_out(facts):
    recorded_ns = replay(facts, Edit()).recorded_ns
    rows = _rows(facts, "slow")
    saved_ns = recorded_ns - replay(facts, remove(rows)).edited_ns
    assert 0 <= saved_ns <= (facts.tree.end_ns - facts.trace.events.start_ns)[rows].sum()
    saved_ns = recorded_ns - replay(facts, unblock(facts.waits.rows)).edited_ns
    assert 0 <= saved_ns <= facts.waits.duration_ns.sum()


@given(_recordings())
def test_more_edits_never_save_less(facts):
    work = facts.launches.work
    edits = [remove(_rows(facts, "slow")), unblock(facts.waits.rows[::2]), unblock(facts.waits.rows[1::2])]
    edits += [shrink_work(work, np.full(len(work), 5_000), 0.1), remove(_rows(facts, "late"), work=work[:1])]
    alone_ns = [replay(facts, edit).edited_ns for edit in edits]
    for count in range(1, len(edits) + 1):
        together_ns = replay(facts, combine(edits[:count])).edited_ns
        assert together_ns <= min(alone_ns[:count])
