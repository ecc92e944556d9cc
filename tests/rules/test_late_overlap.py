"""Gradients that are averaged after the backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profkit.patterns.averaging.exchanged import own_table
from profkit.patterns.averaging.exposed import latency_ns
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.late_overlap import late_overlap
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
STORES = "torch::autograd::AccumulateGrad"
WAITS = ["", "", "", "", "False", "-1"]
TYPES = ["TensorList", "", "", "", "Scalar", "Scalar"]


def all_reduce(at: float, elements: int, duration: float = 20) -> list[Json]:
    """The call returns when the thread of the backend is done."""
    ran = annotation("gloo:all_reduce", at + 1, duration, tid=9)
    ran["args"] |= {"Input Dims": [[elements]], "Input type": ["float"]}
    return [op("c10d::allreduce_", at, 2, dims=[[[elements]], [], [], [], [], []], types=TYPES, concrete=WAITS), ran]


def backward(at: float, gradients: int = 3, length: float = 30, elements: int = 1000) -> list[Json]:
    events = []
    for i in range(gradients):
        each = length / gradients
        begin = at + each * i
        events.append(op(NODE, begin, each))
        events.append(op(STORES, begin + 1, 2, dims=[[elements]], types=["float"]))
    return events


def training_step(*messages: Json, end: float = 200) -> list[Json]:
    """20 µs forward, the backward pass from 20 to 50, the messages, and 10 µs of the optimizer at the end."""
    events = [op("aten::mm", 0, 19), *backward(20), *messages, op("aten::div_", end - 15, 5)]
    return [*events, annotation("Optimizer.step#SGD.step", end - 10, 10), op("aten::add_", end - 9, 8)]


def trained(one: list[Json], length: float = 200, steps: int = 4, **more: Any) -> Any:
    events = [{**event, "ts": event["ts"] + length * i} for i in range(steps) for event in one]
    return facts_of([*events, *(step(i, length * i, length) for i in range(steps))], **more)


def loop(*elements: int, durations: tuple[float, ...] = (20, 20, 20), pause: float = 8) -> list[Json]:
    """One message after another from 60 µs on, each followed by a pause in which there is a division."""
    events: list[Json] = []
    at = 60.0
    for count, duration in zip(elements, durations, strict=False):
        done = at + duration + 2
        events += [*all_reduce(at, count, duration), op("aten::div_", done, 2)]
        at = done + pause
    return events


@pytest.mark.parametrize(
    ("pause", "latency"),
    [(18, 24_000 / (1 + 4_000 / 2**18)), (19, 20_000 - 4_000 * 4_000 / 60_000)],
    ids=["one-right-after-another", "with-time-to-fall-behind-between-them"],
)
def test_only_messages_one_right_after_another_cannot_have_waited_for_a_slower_rank(pause, latency):
    """4 kB take 20 µs, and once 28; before them 64 kB take 24. The pause is a microsecond longer than it says."""
    facts = trained(training_step(*loop(16_000, 1000, 1000, durations=(24, 20, 28), pause=pause), end=230), length=230)
    rows = np.arange(len(own_table(facts).collectives))
    assert latency_ns(facts, rows) == pytest.approx(latency, abs=2)


def test_time_that_grows_with_the_bytes_is_no_latency():
    """The first message, of 4 kB, may have waited; of the others 4 kB take 20 µs and 64 kB 50."""
    facts = trained(training_step(*loop(1000, 16_000, 1000, durations=(30, 50, 20)), end=230), length=230)
    rows = np.arange(len(own_table(facts).collectives))
    assert latency_ns(facts, rows) == pytest.approx(20_000 - 30_000 * 4_000 / 60_000, abs=2)


def find(facts: Any) -> list[Suspicion]:
    return list(late_overlap.check(facts))


def test_a_loop_of_all_reduces_after_the_backward_pass_is_told_with_what_can_be_hidden():
    facts = trained(training_step(*loop(1000, 1000, 1000)))
    (found,) = find(facts)
    assert found.count == 3
    assert found.evidence["gradient_bytes"] == 12_000
    # 3 waits of 19 µs from the call's return to the end; one bucket saves two messages, and the one that is left has
    # nothing to hide behind.
    assert found.evidence["waited_ns_per_step"] == 3 * 19_000
    assert predict_saving(facts, found.edit).fraction == pytest.approx((57 - 20) / 200, abs=0.005)


def test_what_the_first_one_waits_for_a_slower_process_stays():
    slow = trained(training_step(*loop(1000, 1000, 1000, durations=(21, 10, 10))))
    fast = trained(training_step(*loop(1000, 1000, 1000, durations=(10, 10, 10))))
    gains = [predict_saving(facts, found.edit).fraction for facts in (slow, fast) for found in find(facts)]
    assert gains[0] == pytest.approx(gains[1], abs=0.005)


@pytest.mark.parametrize(("elements", "reported"), [(1500, 1), (1499, 0)])
def test_it_carries_half_of_the_gradients_or_it_is_something_else(elements, reported):
    assert len(find(trained(training_step(*loop(elements))))) == reported


def test_a_metric_after_the_backward_pass_is_silent():
    assert find(trained(training_step(*loop(1, 1)))) == []


def test_gradients_that_are_averaged_while_they_are_stored_are_silent():
    """As under DistributedDataParallel; what the program averages besides is for another rule."""
    inside = all_reduce(43, 3000)
    assert find(trained(training_step(*inside))) == []
    assert find(trained(training_step(*inside, *loop(3000)))) == []


def test_what_comes_after_the_optimizer_is_silent():
    """As where models, not gradients, are averaged."""
    late = training_step(end=80)
    after = [{**event, "ts": event["ts"] + 30} for event in loop(1000, 1000, 1000)]
    assert find(trained([*late, *after])) == []


def test_without_shapes_it_does_not_meet_its_needs():
    bare = [{**event, "args": {}} for event in training_step(*loop(1000, 1000, 1000))]
    assert Need.SHAPES in missing_needs(trained(bare), late_overlap.needs)


def test_without_a_backward_pass_nothing_is_said():
    one = [event for event in training_step(*loop(1000, 1000, 1000)) if "Accumulate" not in event["name"]]
    assert find(trained(one)) == []


def test_the_line_is_that_of_the_all_reduces():
    sites = (CallSite("train.py", 7, "train"), CallSite("train.py", 9, "train"))
    one = training_step(*loop(1000, 1000, 1000))
    marks = [mark(0, 19.5, 31), mark(1, 59, 90)]
    events = [{**event, "ts": event["ts"] + 200 * i} for i in range(4) for event in one]
    (found,) = find(facts_of([*events, *marks, *(step(i, 200 * i, 200) for i in range(4))], callsites=sites))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 9)
