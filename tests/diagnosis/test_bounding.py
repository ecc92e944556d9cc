"""What a step waits for, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.diagnosis.bounding import describe_bound, explain_bound
from profkit.findings.values import TimeShare, Timing

COMPUTING, COMMUNICATING = "device: computing", "device: communicating, nothing computed meanwhile"
COPYING, BETWEEN = "device: copying and clearing memory", "device: between two queued kernels"
INHERITED, LAUNCHING = "device: at work launched before the recording", "idle: launching work"
LAG = "idle: before the first kernel began, cause not recorded"


def table(rows: dict[str, float], step_ns: int = 10_000_000) -> tuple[TimeShare, ...]:
    return tuple(TimeShare(label, int(share * step_ns), share) for label, share in rows.items())


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({COMPUTING: 0.93, LAUNCHING: 0.07}, "the device bounds the step: it works 93 %"),
        (
            {COMPUTING: 0.73, COPYING: 0.13, COMMUNICATING: 0.1, LAUNCHING: 0.04},
            "the device bounds the step: it works 96 % (computes 73 %, copies and clears memory 13 %)",
        ),
        (
            {COMPUTING: 0.34, COMMUNICATING: 0.62, COPYING: 0.03, LAUNCHING: 0.01},
            "the device bounds the step: it works 99 % (communicates 62 % while nothing is computed, computes 34 %)",
        ),
        (
            {COMPUTING: 0.8, BETWEEN: 0.17, LAUNCHING: 0.03},
            "the device bounds the step: it works 80 %, and pauses 17 % between queued kernels",
        ),
        ({COMPUTING: 0.96, BETWEEN: 0.04}, "the device bounds the step: it works 96 %"),
        (
            {INHERITED: 1.0},
            "the device bounds the step: it works 100 % (finishes what was launched before the recording 100 %)",
        ),
        (
            {COMPUTING: 0.11, "idle: waiting for data": 0.2, LAUNCHING: 0.61, "idle: x": 0.08},
            "the host bounds the step: launching work 61 %, waiting for data 20 %; the device works 11 %",
        ),
        (
            {LAUNCHING: 0.95, COMPUTING: 0.003, "idle: nothing recorded": 0.047},
            "the host bounds the step: launching work 95 %; the device works 0.3 %",
        ),
        (
            {"idle: nothing recorded": 1.0},
            "the host bounds the step: the host does nothing that was recorded 100 %; the device works 0 %",
        ),
        (
            {COMPUTING: 0.69, LAUNCHING: 0.2, "idle: though work is queued": 0.11},
            (
                "host and device share the step: the device works 69 %; it idles: launching work 20 %, "
                "work is queued, but nothing runs 11 %"
            ),
        ),
        (
            {COMPUTING: 0.6, LAUNCHING: 0.18, "idle: though work is queued": 0.22},
            (
                "part of the step waits for what was not recorded: the device works 60 %; it idles: "
                "work is queued, but nothing runs 22 %, launching work 18 %"
            ),
        ),
        (
            {COMPUTING: 0.35, "idle: though work is queued": 0.65},
            "the step waits for what was not recorded: work is queued, but nothing runs 65 %; the device works 35 %",
        ),
        (
            {COMPUTING: 0.06, LAUNCHING: 0.64, LAG: 0.3},
            (
                "the host bounds the rest of the step: launching work 64 %; the device works 6.0 %; "
                "30 % passed before the first kernel began, cause not recorded"
            ),
        ),
        ({COMPUTING: 0.95, LAG: 0.04}, "the device bounds the step: it works 95 %"),
        ({LAG: 1.0}, "nothing is known of the step"),
        ({"backward": 1.0}, ""),
        ({}, ""),
    ],
)
def test_the_rows_of_the_table_are_told(rows, text):
    timing = Timing(4, 10_000_000, "", shares=table(rows))
    assert describe_bound(timing) == text
    assert bool(explain_bound(timing)) is bool(text)


HOST = Timing(4, 10_000_000, "", shares=table({COMPUTING: 0.2, LAUNCHING: 0.8}))
DEVICE = Timing(4, 10_000_000, "", shares=table({COMPUTING: 0.92, LAUNCHING: 0.08}), host_step_time_ns=8_900_000)


def test_times_are_those_of_the_rows_and_of_the_step():
    assert (
        explain_bound(HOST) == "The host bounds the step: launching work 8.00 ms; the device works 2.00 ms of 10.0 ms"
    )
    assert explain_bound(DEVICE) == (
        "The device bounds the step: it works 9.20 ms of 10.0 ms; the host is done in 8.90 ms"
    )
    late = replace(DEVICE, host_step_time_ns=9_000_000)
    assert explain_bound(late) == "The device bounds the step: it works 9.20 ms of 10.0 ms"


@pytest.mark.parametrize(
    ("recorded", "source", "text"),
    [
        (0.2, "estimated", "the host bounds the step: launching work 60 %; the device works 40 % (as recorded 20 %)"),
        (0.38, "estimated", "the host bounds the step: launching work 60 %; the device works 40 %"),
        (0.2, "measured", "the host bounds the step: launching work 60 %; the device works 40 % (as recorded 20 %)"),
    ],
)
def test_an_estimate_that_changes_the_devices_share_names_the_recorded_one(recorded, source, text):
    shares = table({COMPUTING: 0.4, LAUNCHING: 0.6}, 5_000_000)
    before = table({COMPUTING: recorded, LAUNCHING: 1 - recorded})
    timing = Timing(4, 10_000_000, "", 5_000_000, 1.0, shares, unprofiled_from=source, recorded_shares=before)
    assert describe_bound(timing) == text


def test_an_estimate_that_turns_the_verdict_round_is_told_after_it():
    shares = table({COMPUTING: 0.95, LAUNCHING: 0.05}, 2_000_000)
    before = table({COMPUTING: 0.19, LAUNCHING: 0.81})
    timing = Timing(4, 10_000_000, "", 2_000_000, 1.0, shares, unprofiled_from="estimated", recorded_shares=before)
    assert describe_bound(timing) == (
        "as recorded the host bounds the step (launching work 81 %), the device works 19 %; "
        "by estimate, without the recording the device bounds the step: it works 95 %"
    )
    assert explain_bound(timing) == (
        "As recorded the host bounds the step (launching work 8.10 ms), the device works 1.90 ms of 10.0 ms; "
        "by estimate, without the recording the device bounds the step: it works 1.90 ms of 2.00 ms"
    )
    assert (
        describe_bound(replace(timing, unprofiled_from="measured")).count("; as measured, without the recording ") == 1
    )
