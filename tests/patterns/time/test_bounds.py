"""What bounds a step, by the rows of its table."""

from __future__ import annotations

import pytest

from profkit.patterns.time.bounds import find_bound

LAUNCHING, QUEUED, LAG = "launching work", "though work is queued", "before the first kernel began, cause not recorded"


@pytest.mark.parametrize(
    ("device", "idle", "bound"),
    [
        (90, {LAUNCHING: 10}, "device"),
        (89, {LAUNCHING: 11}, "mixture"),
        (50, {LAUNCHING: 50}, "mixture"),
        (49, {LAUNCHING: 51}, "host"),
        (40, {LAUNCHING: 40, "waiting for data": 20}, "host"),
        (49, {QUEUED: 51}, "unrecorded"),
        (40, {QUEUED: 30, LAUNCHING: 30}, "mixture"),
        (40, {"the host waits for work that was not recorded": 60}, "unrecorded"),
        (40, {"the host was not recorded": 60}, "unrecorded"),
        (90, {LAUNCHING: 10, LAG: 900}, "device"),
        (10, {LAUNCHING: 90, LAG: 900}, "host"),
        (0, {LAG: 900}, None),
        (0, {}, None),
    ],
)
def test_the_rows_of_the_table_decide(device, idle, bound):
    rows = [("device: computing", device / 2), ("device: between two queued kernels", device / 2)]
    assert find_bound([*rows, *((f"idle: {reason}", time) for reason, time in idle.items())]) == bound


def test_without_a_device_nothing_bounds_the_step():
    assert find_bound([("backward", 80), ("waiting for data", 20)]) is None
