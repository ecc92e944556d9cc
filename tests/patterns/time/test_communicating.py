"""How long the devices exchange data, and what hides that."""

from __future__ import annotations

from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.time.communicating import Communicating, communicating
from tests.traces import facts_of, kernel, op, runtime, step

COMBINE = "void deep_ep::internode::combine<false>(int4*)"


def _facts(name, start, duration):
    """Three steps of 1 ms; the kernel computes from 100 to 900 µs of each."""
    events = []
    for number in range(3):
        at = 1000 * number
        events += [
            step(number, at, 1000),
            op("aten::mm", at + 5, 30),
            runtime("cudaLaunchKernel", at + 10, 5, correlation=2 * number + 1),
            runtime("cudaLaunchKernel", at + 20, 5, correlation=2 * number + 2),
            kernel("sgemm", at + 100, 800, correlation=2 * number + 1),
            kernel(name, at + start, duration, correlation=2 * number + 2, stream=27),
        ]
    return facts_of(events)


def test_what_runs_beside_computing_is_hidden():
    assert communicating(_facts(COMBINE, 150, 700)) == Communicating(700_000, 1.0)


def test_what_sticks_out_is_not():
    assert communicating(_facts(COMBINE, 50, 200)) == Communicating(200_000, 0.75)


def test_a_kernel_that_is_named_alike_and_computes_is_no_communication():
    assert communicating(_facts("void flash_fwd_splitkv_combine_kernel<int>(int)", 150, 700)) is None


def test_the_diagnosis_states_both_figures():
    timing = diagnose(_facts(COMBINE, 50, 200)).timing
    assert (timing.communication_ns, timing.communication_hidden) == (200_000, 0.75)
    timing = diagnose(_facts("relu", 50, 200)).timing
    assert (timing.communication_ns, timing.communication_hidden) == (None, None)
