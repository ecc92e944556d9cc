"""The replay: what it reproduces, and what an edit is worth, in exact numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.facts import Facts
from profkit.run.directory import Run
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_spans, shrink_work, unblock
from profkit.savings.replay import Replay, replay
from profkit.savings.simulate import predict_saving
from tests.savings.replaying import LAUNCH, SYNC, _ns, _replay_us, _rows
from tests.traces import annotation, facts_of, kernel, mark, op, pause, runtime, step


def _host_steps() -> Facts:
    """Two steps of 100 µs, each with `slow` (20 µs, of which `inner` 10) and `quick` (10 µs)."""
    events = []
    for n in range(2):
        at = 100 * n
        events += [step(n, at, 100), op("slow", at + 10, 20), op("inner", at + 15, 10), op("quick", at + 50, 10)]
    return facts_of([*events, op("elsewhere", 0, 200, tid=2)])


def test_without_an_edit_nothing_changes():
    assert _replay_us(_host_steps(), Edit()) == (200, 200)


@pytest.mark.parametrize(
    ("names", "edited"),
    [
        (["slow"], 160),
        (["inner"], 180),
        (["quick"], 180),
        (["slow", "inner"], 160),
        (["slow", "quick"], 140),
        (["elsewhere"], 200),
    ],
)
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
    facts = facts_of(
        [
            step(0, 0, 100),
            op("autograd::engine::evaluate_function: MulBackward0", 20, 60, tid=2),
            op("aten::mul", 30, 10, tid=2),
            op("aten::mul", 40, 10, tid=3),
        ]
    )
    assert _replay_us(facts, remove(_rows(facts, "aten::mul"))) == (100, 90)


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
    """Of 20 µs 4 µs came with the recording: what takes 10 µs of the 16 µs that are left gives back five eighths."""
    events = [step(0, 0, 20), op("slow", 6, 10), step(1, 20, 20), op("slow", 26, 10)]
    facts = facts_of(events, run=Run(reference_step_ns=(16_000, 14_000, 32_000)))
    saving = predict_saving(facts, remove(_rows(facts, "slow")))
    assert saving.fraction == pytest.approx(5 / 8)
    assert saving.time_ns_per_step == 10_000


def test_steps_that_were_recorded_on_a_busy_machine_keep_the_shares_of_what_they_did():
    """They took twice as long as those before, of which recording itself can account for 10 µs at most."""
    events = [step(0, 0, 2000), op("slow", 600, 1000)]
    facts = facts_of(events, run=Run(reference_step_ns=(1_000_000,)))
    saving = predict_saving(facts, remove(_rows(facts, "slow")))
    assert saving.fraction == pytest.approx(1000 / 1990, abs=1e-4)
    assert saving.time_ns_per_step == pytest.approx(1_000_000 * 1000 / 1990, rel=1e-4)


def test_what_holds_more_events_was_distorted_more():
    """Both halves seem to take 50 µs; one holds ten operators with 4 µs of recording before each, the other one."""
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
    assert result.recorded_ns >= 0


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
