"""Where the step's time went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.time.shares import time_shares
from profkit.run.directory import CallSite, Run
from tests.traces import annotation, facts_of, kernel, mark, memcpy, op, pause, python, runtime, step

SGD = "Optimizer.step#SGD.step"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _shares_us(facts: Facts) -> dict[str, float]:
    return {label: time_ns / 1000 for label, time_ns in time_shares(facts)}


def test_without_a_device_the_time_of_the_main_thread_is_divided():
    events = []
    for n in range(2):
        at = 100 * n
        events += [
            step(n, at, 100),
            annotation(LOADER, at + 10, 20),
            op("aten::stack", at + 12, 9),
            op("aten::mm", at + 40, 10),
            op("autograd::engine::evaluate_function: MmBackward0", at + 55, 15),
            op("aten::mm", at + 60, 5),
            annotation(SGD, at + 80, 10),
            op("aten::add_", at + 82, 5),
            op("aten::mm", at, 100, tid=2),
        ]
    assert _shares_us(facts_of(events)) == {
        "waiting for data": 20,
        "optimizer": 10,
        "backward": 15,
        "operators of the forward pass and others": 10,
        "Python and all else between operators": 45,
    }


def test_with_a_device_its_work_comes_first_and_idle_time_is_explained():
    facts = facts_of(
        [
            step(0, 0, 100),
            op("aten::mm", 1, 5),
            annotation(LOADER, 10, 20),
            annotation(SGD, 85, 15),
            kernel("sgemm", 25, 25),
            kernel("ncclDevKernel_AllReduce", 45, 15, stream=20),
            memcpy("Memcpy DtoD", 55, 10),
            kernel("sgemm", 90, 30),
        ]
    )
    assert _shares_us(facts) == {
        "device: computing": 55,
        "device: communicating, nothing computed meanwhile": 10,
        "device: copying and clearing memory": 5,
        "idle: waiting for data": 15,
        "idle: in the optimizer's step": 5,
        "idle: operators on the host": 5,
        "idle: nothing recorded": 25,
    }


@pytest.mark.parametrize(("begins", "queued_us"), [(120, 40), (80, 0), (81, 1)])
def test_an_idle_device_with_queued_work_waits_for_something_that_was_not_recorded(begins, queued_us):
    """The launch returns at 30 µs; 50 µs later its work should have begun, whatever the host does."""
    facts = facts_of(
        [
            step(0, 0, 200),
            op("aten::mm", 0, 40),
            runtime("cudaLaunchKernel", 20, 10, correlation=1),
            kernel("sgemm", begins, 200 - begins, correlation=1),
        ]
    )
    shares = _shares_us(facts)
    assert shares.get("idle: though work is queued", 0) == queued_us
    assert sum(shares.values()) == 200


def test_the_first_kernels_lag_behind_its_launch_is_neither_work_nor_the_hosts():
    facts = facts_of(
        [
            op("aten::mm", 0, 20),
            runtime("cudaLaunchKernel", 5, 5, correlation=1),
            kernel("sgemm", 3_010, 90, correlation=1),
        ]
    )
    assert _shares_us(facts) == {
        "device: computing": 90,
        "idle: before the first kernel began, cause not recorded": 3_000,
        "idle: launching work": 10,
    }


@pytest.mark.parametrize(
    ("second_begins", "label"),
    [(9_010, "device: at work launched before the recording"), (9_000, "idle: though work is queued")],
)
def test_a_device_is_at_earlier_work_if_the_host_later_runs_as_far_ahead(second_begins, label):
    """The second launch returns at 4 ms; its kernel starts 5 ms later, behind the first, or after a pause of 2 ms."""
    facts = facts_of(
        [
            op("aten::mm", 0, 20),
            runtime("cudaLaunchKernel", 5, 5, correlation=1),
            kernel("sgemm", 3_010, 6_000 if second_begins == 9_010 else 3_990, correlation=1),
            runtime("cudaLaunchKernel", 3_995, 5, correlation=2),
            kernel("sgemm", second_begins, 90, correlation=2),
        ]
    )
    assert label in _shares_us(facts)
    assert ("device: at work launched before the recording" in _shares_us(facts)) is (second_begins == 9_010)


@pytest.mark.parametrize(
    ("pause_us", "label"), [(99, "device: between two queued kernels"), (100, "idle: though work is queued")]
)
def test_a_short_pause_between_queued_kernels_is_the_devices_own(pause_us, label):
    facts = facts_of(
        [
            step(0, 0, 2_000),
            runtime("cudaLaunchKernel", 0, 5, correlation=1),
            runtime("cudaLaunchKernel", 5, 5, correlation=2),
            kernel("sgemm", 10, 990, correlation=1),
            kernel("sgemm", 1_000 + pause_us, 900, correlation=2),
        ]
    )
    assert _shares_us(facts)[label] == pause_us


def test_without_any_event_of_the_host_nothing_says_what_the_device_waits_for():
    facts = facts_of([kernel("sgemm", 0, 40), kernel("sgemm", 60, 40)])
    assert _shares_us(facts) == {"device: computing": 80, "idle: the host was not recorded": 20}


def test_a_long_wait_without_recorded_work_is_told_apart_from_one_that_it_explains():
    facts = facts_of(
        [
            step(0, 0, 1_000),
            runtime("cudaLaunchKernel", 0, 10, correlation=1),
            kernel("sgemm", 20, 200, correlation=1),
            runtime("cudaStreamSynchronize", 20, 210),
            runtime("cudaStreamSynchronize", 300, 500),
        ]
    )
    shares = _shares_us(facts)
    assert shares["idle: the host waits for the device"] == 10
    assert shares["idle: the host waits for work that was not recorded"] == 500


def test_only_measured_steps_are_divided():
    facts = facts_of([step(0, 0, 50), mark(1, 5, 9), op("aten::mm", 6, 5), step(1, 50, 100), op("aten::mm", 60, 30)])
    assert _shares_us(facts) == {
        "operators of the forward pass and others": 30,
        "Python and all else between operators": 70,
    }


def _uneven_steps() -> list[dict[str, object]]:
    """Steps of 100, 100 and 400 µs that compute half of the time: the median is 100 µs, the mean 200 µs."""
    lengths = (100, 100, 400)
    starts = (0, 100, 200)
    return [
        event
        for n, (at, length) in enumerate(zip(starts, lengths, strict=True))
        for event in (step(n, at, length), op("aten::mm", at, length / 2))
    ]


def test_the_shares_are_those_of_the_median_step():
    assert _shares_us(facts_of(_uneven_steps())) == {
        "operators of the forward pass and others": 50,
        "Python and all else between operators": 50,
    }


@pytest.mark.parametrize(("reference_ns", "times_ns"), [((), (50_000, 50_000)), ((80_000,) * 3, (40_000, 40_000))])
def test_a_shares_time_is_its_fraction_of_the_step_that_the_report_states(reference_ns, times_ns):
    timing = diagnose(facts_of(_uneven_steps(), run=Run(reference_step_ns=reference_ns))).timing
    assert timing.step_time_ns == 100_000
    assert tuple(share.time_ns_per_step for share in timing.shares) == times_ns
    assert [share.fraction for share in timing.shares] == [0.5, 0.5]


def test_pauses_of_profkit_inside_a_step_are_a_share_of_their_own():
    facts = facts_of([*(annotation(SGD, at, 1) for at in (0, 100)), pause(20, 30), op("aten::mm", 60, 10)])
    assert _shares_us(facts)["profkit itself, left out of the step"] == 30


def test_idle_time_is_assigned_to_its_best_explanation():
    """The explanations lie within each other: a wait in an operator that launches, an allocation in a compilation."""
    facts = facts_of(
        [
            step(0, 0, 10_000),
            annotation(LOADER, 0, 100),
            runtime("cudaMalloc", 20, 60),
            op("_compile.compile_inner (dynamo_timed)", 1_000, 300),
            runtime("cudaFree", 1_100, 50),
            runtime("cuModuleLoadData", 1_300, 20),
            op("aten::item", 2_000, 400),
            runtime("cudaMemcpyAsync", 2_010, 10, correlation=1),
            runtime("cudaStreamSynchronize", 2_100, 200),
            op("aten::empty", 3_000, 60),
            runtime("cudaHostAlloc", 3_010, 40),
            op("Torch-Compiled Region: 0/0", 4_000, 500),
            op("triton_poi_fused_add_0", 4_400, 20),
            memcpy("Memcpy DtoH (Device -> Pinned)", 2_040, 10, correlation=1),
        ]
    )
    assert _shares_us(facts) == {
        "device: copying and clearing memory": 10,
        "idle: waiting for data": 100,
        "idle: compiling or loading code": 320,
        "idle: allocating or freeing memory": 40,
        "idle: the host waits for work that was not recorded": 200,
        "idle: launching work": 400 - 200 - 10,
        "idle: operators on the host": 20 + 20,
        "idle: on the way into compiled code": 480,
        "idle: nothing recorded": 10_000 - 10 - 100 - 320 - 40 - 200 - 190 - 40 - 480,
    }


@pytest.mark.parametrize(("apart_us", "launching_us"), [(999, 1_017), (1_000, 18)])
def test_between_launches_less_than_a_millisecond_apart_the_host_is_launching(apart_us, launching_us):
    facts = facts_of(
        [
            step(0, 0, 3_000),
            runtime("cudaLaunchKernel", 100, 10, correlation=1),
            runtime("cudaLaunchKernel", 110 + apart_us, 10, correlation=2),
            kernel("k", 108, 2, correlation=1),
            kernel("k", 2_510, 10, correlation=2),
        ]
    )
    assert _shares_us(facts)["idle: launching work"] == launching_us


def test_while_the_main_thread_waits_for_the_backward_pass_that_thread_counts():
    facts = facts_of(
        [
            step(0, 0, 1_000),
            op("autograd::engine::evaluate_function: MmBackward0", 100, 300, tid=2),
            runtime("cudaLaunchKernel", 150, 10, correlation=1, tid=2),
            runtime("cudaMalloc", 200, 50, tid=2),
            kernel("k", 170, 20, correlation=1),
            op("aten::mm", 400, 200, tid=9),
        ]
    )
    assert _shares_us(facts) == {
        "device: computing": 20,
        "idle: allocating or freeing memory": 50,
        "idle: launching work": 230,
        "idle: nothing recorded": 700,
    }


def test_the_rest_is_named_after_the_function_with_most_of_it():
    facts = facts_of(
        [
            step(0, 0, 1_000),
            python("train.py(1): <module>", 0, 900),
            python("/home/u/data.py(7): load", 100, 400),
            python("/x/site-packages/lib.py(3): decode", 150, 300),
            python("data.py(20): crop", 600, 50),
            runtime("cudaLaunchKernel", 680, 10, correlation=1),
            kernel("k", 700, 100, correlation=1),
        ]
    )
    assert _shares_us(facts) == {
        "device: computing": 100,
        "idle: launching work": 10,
        "idle: in load (data.py:7)": 400,
        "idle: elsewhere in Python": 900 - 400 - 10 - 100,
        "idle: nothing recorded": 100,
    }


def test_numbered_ranges_are_one_place_and_those_of_pytorch_are_none():
    facts = facts_of(
        [
            step(0, 0, 1_000),
            annotation("Optimizer.zero_grad#SGD.zero_grad", 0, 300),
            annotation("batch 1", 300, 100),
            annotation("batch 2", 400, 100),
            annotation("evaluate", 500, 150),
            kernel("k", 900, 100),
        ]
    )
    assert _shares_us(facts) == {
        "device: computing": 100,
        'idle: in the range "batch"': 200,
        "idle: elsewhere in Python": 150,
        "idle: nothing recorded": 550,
    }


def test_if_every_step_is_located_the_line_is_named():
    sites = (CallSite("/home/u/train.py", 3, "main"), CallSite("/home/u/train.py", 4, "main"))
    facts = facts_of([step(0, 0, 100), mark(0, 0, 30), mark(1, 30, 60), kernel("k", 80, 5)], callsites=sites)
    assert _shares_us(facts)["idle: in line train.py:4"] == 55
    assert _shares_us(facts)["idle: elsewhere in Python"] == 30


def test_of_two_places_with_equal_time_the_first_by_name_is_named():
    facts = facts_of([step(0, 0, 100), python("b.py(1): g", 10, 20), python("b.py(9): f", 40, 20), kernel("k", 90, 5)])
    assert _shares_us(facts)["idle: in f (b.py:9)"] == 20


def test_without_a_device_the_function_with_most_of_the_rest_is_named_too():
    facts = facts_of([step(0, 0, 100), python("data.py(7): load", 10, 50), op("aten::mm", 20, 10)])
    assert _shares_us(facts) == {
        "operators of the forward pass and others": 10,
        "Python in load (data.py:7)": 40,
        "Python and all else between operators": 50,
    }


def test_compiled_code_without_operators_is_computing():
    facts = facts_of([step(0, 0, 100), op("Torch-Compiled Region: 0/0", 10, 50), op("aten::mm", 20, 10)])
    assert _shares_us(facts)["operators of the forward pass and others"] == 50


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "op",
                "loader",
                "optimizer",
                "backward",
                "kernel",
                "nccl",
                "copy",
                "malloc",
                "wait",
                "launch",
                "frame",
                "range",
                "region",
            ]
        ),
        st.integers(0, 300),
        st.integers(0, 90),
    ),
    max_size=12,
)
_MAKE = {
    "op": lambda at, length: op("aten::mm", at, length),
    "loader": lambda at, length: annotation(LOADER, at, length),
    "optimizer": lambda at, length: annotation("Optimizer.step#Adam.step", at, length),
    "backward": lambda at, length: op("autograd::engine::evaluate_function: MulBackward0", at, length),
    "kernel": lambda at, length: kernel("sgemm", at, length),
    "nccl": lambda at, length: kernel("ncclDevKernel_AllGather", at, length, stream=9),
    "copy": lambda at, length: memcpy("Memcpy DtoH", at, length, stream=11),
    "malloc": lambda at, length: runtime("cudaMalloc", at, length),
    "wait": lambda at, length: runtime("cudaStreamSynchronize", at, length, tid=2),
    "launch": lambda at, length: runtime("cudaLaunchKernel", at, length, correlation=1),
    "frame": lambda at, length: python(f"train.py({at}): f", at, length),
    "range": lambda at, length: annotation("mine", at, length),
    "region": lambda at, length: op("Torch-Compiled Region: 0/0", at, length),
}


@given(_EVENTS, st.lists(st.integers(1, 120), min_size=1, max_size=3))
def test_shares_add_up_to_the_step(events, lengths):
    steps = [step(i, sum(lengths[:i]), length) for i, length in enumerate(lengths)]
    facts = facts_of([*steps, *(_MAKE[kind](at, length) for kind, at, length in events)])
    times_ns = [time_ns for _, time_ns in time_shares(facts)]
    assert all(time_ns >= 0 for time_ns in times_ns)
    assert sum(times_ns) == pytest.approx(facts.steps.median_ns, abs=len(times_ns))


@pytest.mark.parametrize(
    ("silent_us", "call_us", "launching_us"),
    [
        (2_000, 5, 35),  # cuDNN plans an attention for a new length, a scripted function compiles
        (999, 5, 1_029),  # less than a millisecond may be the way to the launch
        (10, 2_000, 2_035),  # the call itself is long: a launch
    ],
)
def test_a_long_stretch_inside_an_operator_without_any_event_is_not_launching(silent_us, call_us, launching_us):
    end = 10 + silent_us + call_us + 20
    events = [
        step(0, 0, end + 100),
        op("aten::scaled_dot_product_attention", 0, end),
        op("aten::_cudnn_attention_forward", 5, end - 10),
        runtime("cudaLaunchKernel", 5 + silent_us, call_us, correlation=1),
        kernel("attention", end + 10, 50, correlation=1),
    ]
    shares = _shares_us(facts_of(events))
    assert shares["idle: launching work"] == pytest.approx(launching_us, abs=10)
    assert shares.get("idle: operators on the host", 0) == (silent_us if silent_us >= 1_000 else 0)
