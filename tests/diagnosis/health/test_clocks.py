"""What the notes say about the clocks: of the host and the GPU, and a clock that jumps."""

from __future__ import annotations

import pytest

from profkit.diagnosis.health import check_recording
from tests.diagnosis.health.launches import launched, notes_of
from tests.traces import facts_of, kernel, op, python, runtime, step


def test_kernels_that_start_before_their_launch_are_counted_with_place_and_amount():
    (note,) = notes_of(*launched(50, shift=-40))
    assert note == (
        "GPU work starts before the call that launches it (50 of 50 GPU events, by up to 30.0 µs, from 30.0 µs "
        "to 4.93 ms into the recording): the clocks of host and GPU disagree, so waits and idle times are off by as "
        "much"
    )
    assert notes_of(*launched(50, shift=-10)) == ()


def test_a_clock_that_is_set_during_the_recording_is_reported_from_that_moment_on():
    events = [
        {**event, "ts": event["ts"] - 40} if event["cat"] == "kernel" and event["ts"] > 3000 else event
        for event in launched(50)
    ]
    (note,) = notes_of(*events)
    assert "(20 of 50 GPU events, " in note
    assert "from 3.00 ms to 4.90 ms into the recording" in note


@pytest.mark.parametrize("shift", [0, 300])
def test_waits_that_return_before_the_work_is_done_are_reported(shift):
    waits = [runtime("cudaDeviceSynchronize", 100 * n + 20, 50) for n in range(20)]
    expected = "waits for the GPU return before its work is done (20 of 20 waits, by up to 290 µs"
    notes = [note for note in notes_of(*launched(20, shift=shift), *waits) if "return before" in note]
    assert [note.startswith(expected) for note in notes] == [True] * (shift > 0)


def test_a_wait_for_one_stream_may_return_while_another_works():
    events = [
        runtime("cudaLaunchKernel", 0, 5, correlation=1),
        kernel("k", 10, 5000, correlation=1, stream=9),
        runtime("cudaLaunchKernel", 10, 5, correlation=2),
        kernel("k", 20, 100, correlation=2),
        runtime("cudaStreamSynchronize", 16, 110),
    ]
    assert notes_of(*events) == ()


def test_a_gap_longer_than_the_rest_of_the_recording_is_reported():
    events = [op("aten::mul", at, 10) for at in (0, 100, 60_000_000, 60_000_100)]
    notes = check_recording(facts_of([*events, python("train.py(1): main", 0, 60_000_200)]))
    assert (
        "nothing was recorded for 60.0 s, 100 % of the recording, from 110 µs on: the machine slept or its "
        "clock was set" in notes
    )


def test_a_long_event_or_a_gap_of_seconds_is_no_flaw():
    within = [step(0, 0, 60_000_000), step(1, 60_000_000, 9), op("aten::mul", 60_000_000, 1)]
    assert check_recording(facts_of(within)) == ()
    short = [op("aten::mul", at, 10) for at in (0, 100, 9_000_000, 9_000_100)]
    assert not any("nothing was recorded" in note for note in check_recording(facts_of(short)))
