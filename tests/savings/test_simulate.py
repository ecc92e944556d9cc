"""The range of what an edit gives back."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.derive.facts import Facts
from profkit.run.directory import Run
from profkit.savings.edits import remove, shrink_work, unblock
from profkit.savings.simulate import predict_saving
from tests.savings.replaying import LAUNCH, _rows
from tests.traces import facts_of, kernel, mark, op, runtime, step


def recorded(kernel_us: float) -> Facts:
    """Four steps of 100 µs for the host, half of it in one operator, and of one kernel for the device."""
    length, events = max(100, kernel_us), []
    for n in range(4):
        at = 100 * n
        events += [
            step(n, at, 100),
            runtime(LAUNCH, at + 10, 2, correlation=n + 1),
            op("aten::mm", at + 15, 50),
            kernel("mm", 20 + length * n, kernel_us, correlation=n + 1),
        ]
    return facts_of(events)


def test_behind_a_busy_device_the_host_may_be_four_times_as_fast_as_it_was_recorded():
    """Kernels of 10 µs in place of 1,000: what is left is the host's 100 µs, which may be 25 without the recording."""
    facts = recorded(1_000)
    work = facts.launches.work
    saving = predict_saving(facts, shrink_work(work, np.full(len(work), 10_000), uncertainty=0.0))
    assert (saving.fraction, saving.high) == (pytest.approx(0.9, abs=0.01), pytest.approx(0.975, abs=0.01))
    assert saving.low == saving.fraction


def test_of_a_host_that_bounds_the_steps_the_recording_shows_how_fast_it_is():
    facts = recorded(30)
    saving = predict_saving(facts, remove(_rows(facts, "aten::mm"), uncertainty=0.0))
    assert saving.low == saving.fraction == saving.high == pytest.approx(0.5, abs=0.01)


def test_what_gives_nothing_back_gains_nothing_by_a_faster_host():
    facts = recorded(1_000)
    assert predict_saving(facts, remove(_rows(facts, "aten::mm"), uncertainty=0.0)).high == 0


@pytest.mark.parametrize(
    ("is_marked", "is_timed", "more", "margin"),
    [(True, True, 0.4, 0.3), (True, False, 0.0, 0.0), (False, True, 0.0, 0.0)],
)
def test_a_host_that_marks_lines_comes_late_to_its_waits(is_marked, is_timed, more, margin):
    """In a step of 200 µs it waits for 30 of the kernel's 40 µs, and in one of 100 µs perhaps for all of them. As its
    work is shrunk to that, how long it takes there is less certain."""
    events = [
        step(3, 0, 200),
        *([mark(0, 0, 5)] if is_marked else []),
        runtime(LAUNCH, 98, 2, correlation=1),
        kernel("mm", 100, 40, correlation=1),
        runtime("cudaStreamSynchronize", 110, 30),
        op("aten::mm", 150, 40),
    ]
    plain = (100_000,) * 4 if is_timed else ()
    facts = facts_of(events, run=Run(reference_step_ns=plain, reference_step_device_ns=plain))
    saving = predict_saving(facts, replace(unblock(facts.waits.rows), uncertainty=0.0))
    assert saving.high == pytest.approx((1 + margin) * (saving.fraction + more), abs=1e-5)
    assert saving.low == pytest.approx((1 - margin) * saving.fraction, abs=1e-5)
    assert saving.fraction > 0.1


def test_a_first_lag_is_no_time_that_an_edit_shortens():
    """The device works for 10 of 20 ms, in the second half. Without one of its two kernels the step takes 15."""
    events = [
        op("aten::mm", 0, 10),
        op("aten::mm", 10, 10),
        runtime("cudaLaunchKernel", 2, 2, correlation=1),
        runtime("cudaLaunchKernel", 12, 2, correlation=2),
        kernel("gemm", 10_000, 5_000, correlation=1),
        kernel("gemm", 15_000, 5_000, correlation=2),
        runtime("cudaDeviceSynchronize", 20, 19_985),
    ]
    facts = facts_of(events)
    assert facts.device.first_lag.total_ns > 9_900_000
    without = remove(np.zeros(0, dtype=np.int64), facts.launches.work[1:], 0.0)
    saving = predict_saving(facts, without)
    assert saving.time_ns_per_step == pytest.approx(5_000_000, rel=0.01)
    assert saving.fraction == pytest.approx(0.25, rel=0.01)


def test_the_range_holds_what_a_recording_gives_that_slowed_everything_alike():
    """Of 100 µs, 10 are the recording's, and none of these lies in the operator of 10 µs: it takes a ninth of a step
    without the recording, or a tenth of each."""
    events = [step(0, 0, 100), op("aten::a", 20, 10), op("aten::b", 60, 10)]
    facts = facts_of(events, run=Run(reference_step_ns=(90_000,)))
    edit = remove(np.array(_rows(facts, "aten::a")), uncertainty=0.0)
    saving = predict_saving(facts, edit)
    assert (saving.low, saving.fraction, saving.high) == pytest.approx((0.1, 1 / 9, 1 / 9), abs=1e-4)
    plain = predict_saving(facts, replace(edit, of_plain_steps=True))
    assert (plain.low, plain.fraction) == pytest.approx((1 / 9, 1 / 9), abs=1e-4)
    unknown = facts_of(events)
    assert predict_saving(unknown, edit).low == pytest.approx(0.1)
