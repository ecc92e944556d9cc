"""Where the steps lie, by each sign of a step."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.derive.steps.boundaries import Steps, measured_numbers
from profkit.derive.steps.repetition import find_period
from tests.traces import annotation, facts_of, kernel, mark, op, pause, python, runtime, step, trace_of


def _steps(events) -> Steps:
    return facts_of(events).steps


def _windows(steps: Steps) -> list[tuple[int, int]]:
    return [(int(s) // 1000, int(e) // 1000) for s, e in zip(steps.start_ns, steps.end_ns, strict=True)]


def test_the_profilers_own_marks_come_first():
    steps = _steps(
        [
            step(1, 20, 10),
            step(0, 5, 14),
            op("aten::mul", 0, 1),
            *(annotation("Optimizer.step#SGD.step", at, 1) for at in (6, 12, 22, 26)),
            {**step(0, 5, 14, tid=7), "cat": "gpu_user_annotation", "pid": 0},
        ]
    )
    assert _windows(steps) == [(5, 19), (20, 30)]
    assert steps.source == "the profiler's step marks"
    assert steps.main_lane == 0
    assert steps.median_ns == 12_000
    assert steps.window_ns == (5_000, 30_000)


def test_the_measured_steps_are_numbered_as_the_profiler_numbered_them():
    events = [step(8, 0, 100), mark(0, 1, 5), step(9, 100, 10), step(10, 110, 10), op("aten::mul", 0, 1)]
    trace = trace_of(events)
    assert measured_numbers(trace, Facts(trace).steps) == (9, 10)
    unnumbered = trace_of([op("aten::mul", 0, 1)])
    assert measured_numbers(unnumbered, Facts(unnumbered).steps) is None


def test_step_marks_of_another_thread_are_not_used():
    assert _windows(_steps([step(0, 0, 5), step(1, 5, 5), step(0, 2, 9, tid=2)])) == [(0, 5), (5, 10)]


def test_steps_lie_between_the_ends_of_the_optimizers_steps():
    steps = _steps([op("aten::mul", 0, 1), *(annotation("Optimizer.step#SGD.step", at, 4) for at in (10, 30, 50))])
    assert _windows(steps) == [(14, 34), (34, 54)]
    assert steps.source == "the optimizer's steps"


@pytest.mark.parametrize("name", ["step {}", "train_iter_{}", "Iteration: {}", "batch[{}]"])
def test_ranges_numbered_by_the_program_are_steps(name):
    events = [annotation(name.format(n), 20 * n, 15) for n in (3, 4)]
    steps = _steps([annotation("forward 1", 60, 9), op("aten::mul", 61, 1), *events])
    assert _windows(steps) == [(0, 15), (20, 35)]
    assert steps.source == "the program's numbered ranges"


def test_the_numbers_may_restart_with_each_epoch():
    steps = _steps([annotation(f"batch {n % 6}", 20 * n, 15) for n in range(12)])
    assert (len(steps), steps.source) == (12, "the program's numbered ranges")


@pytest.mark.parametrize("numbers", [(4, 4, 4), (5, 4, 3)])
def test_ranges_whose_numbers_do_not_rise_are_not_steps(numbers):
    events = [annotation(f"batch {n}", 20 * i, 15) for i, n in enumerate(numbers)]
    assert _steps([*events, op("aten::mul", 90, 1)]).source != "the program's numbered ranges"


def test_of_numbered_ranges_those_with_most_time_that_do_not_overlap_are_the_steps():
    inner = [annotation(f"microbatch {n}", 5 * n, 4) for n in range(8)]
    outer = [annotation(f"step {n}", 20 * n, 20) for n in range(2)]
    crossing = [annotation(f"iter {n}", 30 * n, 100) for n in range(3)]
    assert _windows(_steps([*inner, *outer])) == [(0, 20), (20, 40)]
    assert _steps([*crossing, op("aten::mul", 90, 1)]).source != "the program's numbered ranges"


def test_a_range_that_repeats_and_takes_most_of_the_time_is_the_step():
    steps = _steps([annotation("train", 20 * n, 15) for n in range(4)])
    assert _windows(steps) == [(0, 20), (20, 40), (40, 60)]
    assert steps.source == "a range that repeats"
    assert _steps([annotation("train", 20 * n, 15) for n in range(2)]).source.startswith("the whole recording")
    assert _steps([annotation("save", 20 * n, 10) for n in range(4)]).source.startswith("the whole recording")


def test_of_two_optimizers_the_first_one_ends_the_steps():
    names = ("Optimizer.step#Adam.step", "Optimizer.step#SGD.step")
    steps = _steps([annotation(name, at + 3 * i, 1) for at in (0, 10, 20) for i, name in enumerate(names)])
    assert _windows(steps) == [(1, 11), (11, 21)]


def test_an_optimizer_step_inside_another_is_part_of_it():
    inner = [annotation("Optimizer.step#SGD.step", at + 1, 1) for at in (0, 10, 20)]
    outer = [annotation("Optimizer.step#Lookahead.step", at, 4) for at in (0, 10, 20)]
    assert _windows(_steps([*inner, *outer])) == [(4, 14), (14, 24)]


def test_steps_lie_between_the_starts_of_batches():
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = _steps([annotation(name, at, 2) for at in (40, 0, 10, 25)])
    assert _windows(steps) == [(0, 10), (10, 25), (25, 40)]
    assert steps.source == "the DataLoader's batches"


@pytest.mark.parametrize(
    ("repeats", "length", "source"),
    [
        (66, 999, "the whole recording, as one step"),
        (66, 1000, "a pattern that repeats"),
        (64, 999, "a pattern that repeats"),
    ],
)
def test_a_short_pattern_repeated_many_times_is_a_loop_inside_a_step(repeats, length, source):
    events = [
        event
        for i in range(repeats)
        for event in (op("aten::mm", length * i, 400), op("aten::relu", length * i + 500, 400))
    ]
    assert _steps(events).source == source


def test_a_pattern_of_operators_that_repeats_gives_steps():
    events = [op("aten::ones", 0, 5)]
    events += [op(name, 10 + 20 * i + 5 * j, 4) for i in range(5) for j, name in enumerate(("aten::mm", "aten::relu"))]
    steps = _steps(events)
    assert _windows(steps) == [(10, 30), (30, 50), (50, 70), (70, 90)]
    assert steps.source == "a pattern that repeats"


def test_a_pattern_inside_the_one_call_that_fills_the_recording_is_found():
    events = [annotation("main", 0, 200)]
    events += [op(f"aten::{name}", 10 + 30 * i + 10 * j, 9) for i in range(6) for j, name in enumerate(("a", "b", "c"))]
    assert _windows(_steps(events)) == [(10 + 30 * i, 40 + 30 * i) for i in range(5)]


def test_marked_lines_show_the_pattern_if_operators_do_not():
    events = []
    for i in range(5):
        events += [mark(1, 100 * i, 40), mark(2, 100 * i + 50, 40)]
        events += [op(f"aten::op{i}{j}", 100 * i + 3 * j, 2) for j in range(10)]
    steps = _steps(events)
    assert _windows(steps) == [(100 * i, 100 * i + 100) for i in range(4)]
    assert steps.source == "a pattern that repeats"


def test_without_any_sign_of_steps_the_whole_recording_is_one():
    steps = _steps([python("train.py(1): <module>", 0, 90), op("aten::mm", 10, 5), kernel("sgemm", 20, 15)])
    assert _windows(steps) == [(10, 35)]
    assert steps.source == "the whole recording, as one step"
    assert steps.measured.tolist() == [True]


@pytest.mark.parametrize("event", [{**op("x", 3, 0), "cat": "unknown"}, kernel("sgemm", 3, 0), python("f", 3, 0)])
def test_a_recording_of_one_instant_has_a_step(event):
    steps = _steps([event])
    assert (len(steps), steps.measured_count) == (1, 1)
    assert steps.median_ns >= 0


def test_the_main_thread_is_the_one_with_most_work_not_with_open_python_frames():
    trace = trace_of([python("threading.py(1): run", 0, 500, tid=9), op("aten::mm", 0, 20, tid=2), op("a", 0, 10)])
    lane = Facts(trace).steps.main_lane
    assert trace.lanes[lane].thread == "2"


def test_steps_with_marked_lines_are_located_and_the_others_measured():
    steps = _steps([step(0, 0, 10), step(1, 10, 10), step(2, 20, 30), mark(4, 25, 3), mark(5, 2, 3, tid=2)])
    assert steps.located.tolist() == [False, False, True]
    assert steps.measured.tolist() == [True, True, False]
    assert (steps.measured_count, steps.window_ns) == (2, (0, 20_000))


def test_if_every_step_is_located_all_are_measured():
    steps = _steps([step(0, 0, 10), mark(1, 1, 1), step(1, 10, 10), mark(1, 11, 1)])
    assert steps.located.all()
    assert steps.measured.all()


@pytest.mark.parametrize(
    ("lengths", "measured"),
    [
        ((31, 20, 20), [False, True, True]),
        ((30, 20, 20), [True, True, True]),
        ((90, 20), [True, True]),
        ((20, 90, 20), [True, True, True]),
    ],
)
def test_a_cold_first_step_is_left_out_if_two_others_are_faster(lengths, measured):
    starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    steps = _steps([step(i, starts[i], length) for i, length in enumerate(lengths)])
    assert steps.measured.tolist() == measured


def preparing(call: str, *numbers: int, lasts: float = 20) -> list[bool]:
    """Which of five steps of 1 ms are measured if those with these numbers contain the call."""
    calls = [runtime(call, 1000 * i + 100, lasts) for i in numbers]
    return facts_of([*(step(i, 1000 * i, 1000) for i in range(5)), *calls]).steps.measured.tolist()


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuLibraryLoad", "hipModuleLoad", "cudaMalloc", "cuMemCreate"])
def test_steps_that_load_code_or_get_memory_are_left_out_if_most_do_neither(call):
    assert preparing(call, 1, 3) == [True, False, True, False, True]


def test_loading_code_never_repeats_but_getting_memory_may():
    assert preparing("cuModuleLoadData", 0, 1, 2, 3) == [False, False, False, False, True]
    assert preparing("cuModuleLoadData", 0, 1, 2, 3, 4) == [True] * 5
    assert preparing("cudaMalloc", 0, 1, 2) == [True] * 5


@pytest.mark.parametrize(("lasts", "measured"), [(10, True), (11, False)])
def test_first_calls_below_a_hundredth_of_the_step_leave_it_in(lasts, measured):
    assert preparing("cudaMalloc", 2, lasts=lasts)[2] is measured


@pytest.mark.parametrize("freed", ["cudaFree", "hipFree", "cuMemRelease", "cuMemUnmap"])
def test_memory_given_back_in_the_same_step_leaves_it_in(freed):
    calls = [runtime("cudaMalloc", 2100, 50), runtime(freed, 2200, 50)]
    assert facts_of([*(step(i, 1000 * i, 1000) for i in range(5)), *calls]).steps.measured.all()


def test_other_calls_leave_the_step_in():
    assert preparing("cudaStreamSynchronize", 2, lasts=500) == [True] * 5


def test_the_first_of_the_unmarked_steps_may_be_cold_too():
    events = [step(0, 0, 10), mark(1, 1, 1), step(1, 10, 80), step(2, 90, 20), step(3, 110, 20)]
    assert _steps(events).measured.tolist() == [False, False, True, True]


def test_pauses_of_profkit_do_not_count_as_step_time():
    optimizer = "Optimizer.step#SGD.step"
    events = [annotation(optimizer, 0, 1), annotation(optimizer, 20, 1), annotation(optimizer, 60, 1)]
    steps = _steps([*events, pause(30, 18), pause(50, 5, tid=2), op("aten::mm", 22, 2)])
    assert _windows(steps) == [(1, 21), (21, 61)]
    assert steps.duration_ns.tolist() == [20_000, 22_000]


def test_times_outside_all_steps_belong_to_no_step():
    steps = _steps([op("aten::mm", 0, 1), step(0, 10, 10), step(1, 25, 10)])
    asked = np.array([0, 10, 19, 20, 24, 25, 34, 35]) * 1000
    assert steps.index_of(asked).tolist() == [-1, 0, 0, -1, -1, 1, 1, -1]
    assert steps.in_measured(asked).tolist() == [False, True, True, False, False, True, True, False]


def _period(text: str) -> list[int] | None:
    codes = np.array([ord(letter) for letter in text], dtype=np.int32)
    start_ns = np.arange(len(text), dtype=np.int64)
    starts = find_period(codes, start_ns, int(start_ns[-1]))
    return None if starts is None else starts.tolist()


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("abcabcabc", [0, 3, 6]),
        ("xyzabcabcabcabcabc", [3, 6, 9, 12, 15]),
        ("abbbcabbbcabbbc", [0, 5, 10]),
        ("aaaaaaaaa", None),
        ("abab", None),
        ("abcdefghij", None),
        ("abcabcabcdefghijklmnopqrs", None),
    ],
)
def test_the_longest_regular_pattern_is_the_loop(text, starts):
    assert _period(text) == starts


def test_a_loop_that_fills_little_of_the_time_is_not_the_step():
    codes = np.array([1, 2] * 4 + [3], dtype=np.int32)
    start_ns = np.array([0, 1, 2, 3, 4, 5, 6, 7, 100], dtype=np.int64)
    assert find_period(codes, start_ns, 100) is None


@pytest.mark.parametrize(
    ("behind", "end_us", "done_us"),
    [
        ([runtime("cudaDeviceSynchronize", 30, 400)], 30, 405),
        ([runtime("cudaDeviceSynchronize", 30, 390), runtime("cudaDeviceSynchronize", 421, 5)], 30, 405),
        ([runtime("cudaDeviceSynchronize", 30, 400), op("aten::add", 440, 9)], 449, 449),  # the program goes on
        ([runtime("cudaStreamSynchronize", 30, 400)], 430, 430),  # the program's own wait
    ],
)
def test_the_whole_recording_ends_before_the_profilers_last_wait(behind, end_us, done_us):
    launched = runtime("cudaLaunchKernel", 2, 2, correlation=1)
    steps = facts_of([op("aten::mm", 0, 20), launched, kernel("mm", 5, 400, correlation=1), *behind]).steps
    assert (steps.end_ns.tolist(), steps.done_ns.tolist()) == ([1000 * end_us], [1000 * done_us])


@pytest.mark.parametrize(
    ("lengths", "is_cold"),
    [
        ((900, 100, 100, 100), True),
        ((900, 100, 880, 100), False),  # every other step waits for the loader
        ((900, 100, 710, 100), True),  # less than four fifths as long
        ((900, 100, 880, 100, 100), True),  # one of four is an accident
        ((900, 100, 100, 880, 100, 100, 880), False),
    ],
)
def test_a_first_step_that_is_long_like_every_third_is_not_cold(lengths, is_cold):
    begins = np.cumsum((0, *lengths[:-1])).tolist()
    events = [one for i, at in enumerate(begins) for one in (step(i, at, lengths[i]), op("aten::mm", at, 50))]
    assert facts_of(events).steps.measured.tolist() == [not is_cold, *[True] * (len(lengths) - 1)]


def _on_device(*work_us: float, length_us: float = 100, name: str = "gemm") -> Steps:
    """Steps of this length after one another. The device works so long on what each launches, as soon as it can."""
    events, free_us = [], 0.0
    for number, worked_us in enumerate(work_us):
        start_us = number * length_us
        begin_us = max(free_us, start_us + 2)
        free_us = begin_us + worked_us
        events += [
            step(number, start_us, length_us),
            runtime("cudaLaunchKernel", start_us + 1, 1, correlation=number + 1),
            kernel(name, begin_us, worked_us, correlation=number + 1),
        ]
    return _steps(events)


def test_steps_with_different_work_of_a_device_that_bounds_them_take_as_long_as_they_come():
    steps = _on_device(200, 600, 200, 200)
    assert steps.worked_ns.tolist() == [200_000, 600_000, 200_000, 200_000]
    assert (steps.median_ns, steps.usual_ns) == (201_000, 300_500)
    assert steps.per_step_ns(steps.measured_ns / 2) == 150_250


@pytest.mark.parametrize(
    ("work_us", "name"),
    [
        ((200, 249, 200, 200), "gemm"),  # alike
        ((20, 60, 20, 20), "gemm"),  # the host bounds them
        ((200, 600, 200, 200), "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)"),  # a wait for others
    ],
)
def test_otherwise_a_step_takes_the_median(work_us: tuple[float, ...], name: str):
    steps = _on_device(*work_us, name=name)
    assert steps.usual_ns == steps.median_ns


def test_without_a_device_a_long_step_is_an_accident():
    steps = _steps([step(0, 0, 100), step(1, 100, 400), step(2, 500, 100), op("aten::mul", 0, 1)])
    assert (steps.usual_ns, steps.median_ns) == (100_000, 100_000)
