"""Results that were there: in the same step at an earlier line, or in the step before."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook
from profkit.rules.redundant_recomputation import redundant_recomputation
from profkit.run.directory import CallSite, Recomputation, Run, Unwatched, Watch
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
SITES = (
    CallSite("net.py", 5, "Net.forward", "x = self.first(x, edges)"),
    CallSite("net.py", 6, "Net.forward", "x = self.second(x, edges)"),
    CallSite("net.py", 20, "norm", "degree = count(edges)"),
    CallSite("net.py", 21, "norm", "return degree.rsqrt()[edges]"),
    CallSite("net.py", 30, "Layer.forward", "weight = norm(edges)"),
    CallSite("net.py", 31, "Layer.forward", "return spread(x, weight)"),
)
LENGTH = 200
"""Of a step, in microseconds."""


def call(number: int, at: float, duration: float) -> Json:
    return annotation(f"{CALL_MARK}{number}", at, duration)


def layer(at: float, line: int, first_call: int, is_located: bool) -> list[Json]:
    """80 µs: a normalisation of 10 and 20 µs with a pause of 2 µs between, called at line 30, then 40 µs of its own."""
    operators = [op("aten::index_add", at + 6, 10), op("aten::rsqrt", at + 18, 20), op("aten::mul", at + 40, 40)]
    if not is_located:
        return operators
    return [
        mark(line, at, 90),
        mark(4, at + 2, 37),
        mark(2, at + 4, 13),
        call(first_call, at + 5, 11.5),
        operators[0],
        mark(3, at + 17.2, 21.5),
        call(first_call + 1, at + 17.5, 21),
        operators[1],
        mark(5, at + 39.2, 45),
        call(first_call + 2, at + 39.5, 41),
        operators[2],
    ]


def two_layers(at: float, is_located: bool) -> list[Json]:
    return [*layer(at, 0, 0, is_located), *layer(at + 100, 1, 3, is_located)]


def facts_with(known: Recomputation | None, part: Any = two_layers, steps: int = 4, sites: Any = SITES, **run: Any):
    events = []
    for number in range(steps):
        events += [step(number, LENGTH * number, LENGTH), *part(LENGTH * number, number == 0)]
    return facts_of(events, run=Run(recomputation=known, **run), callsites=sites)


def find(facts) -> list[Any]:
    return list(redundant_recomputation.check(facts))


def lines(found: Any) -> list[int]:
    return [found.location.line, *(place.line for place in found.also)]


AGAIN = Recomputation(again=((3, 0), (4, 1)))


def test_a_function_that_does_nothing_else_is_named_where_it_is_called():
    (found,) = find(facts_with(AGAIN))
    assert lines(found) == [30, 5, 6]
    assert found.message == (
        "2 operators a step compute again what the same step has already computed from the same inputs, first at this "
        "line too, called from line 5 and line 6."
    )
    assert found.evidence == {"operators_per_step": 2}


def test_both_operators_vanish_with_what_lies_between_them_and_the_preparation_of_the_first():
    """Of the 26 µs before the first, 10 are Python's; the rest is work of another kind."""
    facts = facts_with(AGAIN)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((10 + 10 + 2 + 20) / LENGTH, abs=1e-4)


def test_where_only_the_located_step_was_recorded_its_own_operators_count():
    """No other was affordable: a step of ten thousand calls."""
    facts = facts_with(AGAIN, steps=1)
    (found,) = find(facts)
    assert lines(found) == [30, 5, 6]
    assert found.count == 2


def test_where_more_than_that_is_done_below_it_the_line_itself_is_named():
    (found,) = find(facts_with(Recomputation(again=((4, 1),))))
    assert lines(found) == [21, 5, 6]
    assert found.message.startswith("1 operator a step computes again what")


def test_a_whole_layer_that_repeats_another_is_named_with_it():
    (found,) = find(facts_with(Recomputation(again=((3, 0), (4, 1), (5, 2)))))
    assert lines(found) == [6, 5]
    assert "first at line 5" in found.message


@pytest.mark.parametrize(
    ("name", "named"),
    [("aten::mm", [30, 5, 6]), ("aten::view", [6, 5]), ("aten::item", [6, 5]), ("aten::mul_", [30, 5, 6])],
)
def test_a_layer_that_also_computes_something_else_however_short_is_not_named(name, named):
    def part(at: float, is_located: bool) -> list[Json]:
        events = two_layers(at, is_located)
        for begun in (at, at + 100):
            events = [one for one in events if (one["name"], one["ts"]) != ("aten::mul", begun + 40)]
            events.append(op(name, begun + 40, 0.5))
        return events

    (found,) = find(facts_with(AGAIN, part))
    assert lines(found) == named


def test_what_the_next_step_makes_of_the_same_is_found_at_each_line():
    (found,) = find(facts_with(Recomputation(again=((3, 0), (4, 1)), each_step=(0, 1))))
    assert lines(found) == [30, 20]
    assert found.count == 4
    assert "the step before" in found.message
    assert "before the loop" in found.fix


def test_what_has_other_inputs_in_the_next_step_repeats_the_same_step_alone():
    each, again = find(facts_with(Recomputation(again=((3, 0), (4, 1)), each_step=(0,), looked_at=5)))
    assert (lines(each), lines(again)) == ([20], [30, 5, 6])
    assert "the step before" in each.message
    assert "the same step" in again.message


def test_the_backward_pass_of_what_vanishes_vanishes_too():
    """With the 5 µs that autograd takes from its node to the next."""

    def part(at: float, is_located: bool) -> list[Json]:
        forward = [op("aten::mm", at + 6, 20, sequence=int(at)), op("aten::mm", at + 46, 20, sequence=int(at) + 1)]
        marks = [mark(0, at, 38), call(0, at + 5, 22), mark(1, at + 40, 38), call(1, at + 45, 22)]
        nodes = [
            op(
                "autograd::engine::evaluate_function: MmBackward0",
                at + 120 - 30 * i,
                25,
                sequence=int(at) + i,
                external=None,
            )
            for i in (1, 0)
        ]
        return [*(marks if is_located else []), *forward, *nodes]

    facts = facts_with(Recomputation(again=((1, 0),)), part)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((10 + 20 + 25 + 5) / LENGTH, abs=1e-4)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(Recomputation(), id="nothing repeats anything"),
        pytest.param(Recomputation(again=((40, 0), (3, 70)), each_step=(99, -5)), id="numbers that the trace lacks"),
    ],
)
def test_it_is_silent_where_nothing_is_told(known):
    assert find(facts_with(known)) == []


@pytest.mark.parametrize("name", ["zeros", "unbind"])
def test_neither_memory_that_is_filled_with_numbers_nor_a_view_is_computed(name):
    def part(at: float, is_located: bool) -> list[Json]:
        marks = [mark(0, at, 60), call(0, at + 5, 50)] if is_located else []
        return [*marks, op(f"aten::{name}", at + 6, 40), op("aten::mul", at + 80, 100)]

    assert find(facts_with(Recomputation(each_step=(0,)), part)) == []


@pytest.mark.parametrize(
    ("source", "took_us", "reported"),
    [("torch.exp(edges)", 0.98, 0), ("torch.exp(edges)", 1.02, 1), ("model(edges)", 5.9, 0), ("model(edges)", 6.1, 1)],
)
def test_half_a_hundredth_of_the_step_is_the_least_and_three_hundredths_in_a_library(source, took_us, reported):
    def part(at: float, is_located: bool) -> list[Json]:
        marks = [mark(0, at, 20), call(0, at + 5, 12)] if is_located else []
        return [*marks, op("aten::exp", at + 6, took_us), op("aten::mul", at + 80, 100)]

    sites = (CallSite("net.py", 5, "Net.forward", source),)
    assert len(find(facts_with(Recomputation(each_step=(0,)), part, sites=sites))) == reported


@pytest.mark.parametrize(("steps_with_it", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_measured_steps_are_the_least(steps_with_it, reported):
    def part(at: float, is_located: bool) -> list[Json]:
        return two_layers(at, is_located) if at < LENGTH * (1 + steps_with_it) else [op("aten::mul", at, 100)]

    assert len(find(facts_with(AGAIN, part, steps=5))) == reported


def test_what_was_not_recorded_it_cannot_judge():
    with pytest.raises(CannotLook, match="was not recorded"):
        find(facts_with(None))


USED = "watching for repeated calls used its 600 ms of CPU time after 1,200 of about 40,000 calls"
ENDED = {"unwatched": (Unwatched(Watch.CALLS.value, USED), Unwatched(Watch.LINES.value, "lines ended"))}


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (ENDED, USED),
        ({"torch": "2.13", "is_part": True}, "the only recorded step was cut off"),
        ({"torch": "2.13"}, "no step of the program was recorded in which it could be watched"),
        ({"torch": "2.13", "step_signal": "optimizer"}, "nothing that could be followed"),
    ],
)
def test_the_reason_is_what_stopped_the_watch(run, reason):
    with pytest.raises(CannotLook, match=reason):
        find(facts_with(None, **run))


def test_if_the_watch_ended_in_the_second_step_what_it_saw_in_the_first_is_judged():
    """And if that shows nothing, the next step is not looked at, which is not the same as nothing found."""
    assert find(facts_with(AGAIN, **ENDED))
    with pytest.raises(CannotLook, match=USED):
        find(facts_with(Recomputation(), **ENDED))
    assert find(facts_with(Recomputation())) == []


@pytest.mark.parametrize(("looked_at", "is_benchmark"), [(0, False), (2, True), (3, False)])
def test_of_a_step_with_many_calls_those_that_were_looked_at_tell_a_benchmark(looked_at, is_benchmark):
    """Two calls of the step repeat; they take 40 of its 140 µs."""
    facts = facts_with(Recomputation(each_step=(0, 1), looked_at=looked_at))
    if is_benchmark:
        with pytest.raises(CannotLook, match="as a benchmark does"):
            find(facts)
    else:
        assert find(facts)


@pytest.mark.parametrize(("each", "times"), [((0, 1, 3, 4), 2), ((0, 1, 4), 1), ((1, 4), 1), ((1,), 0)])
def test_steps_with_fewer_rounds_repeat_what_all_rounds_of_the_located_step_do(each, times):
    """As those of a solver. One round that is not the same leaves open which of them a step with one round makes."""

    def rounds(at: float, is_located: bool) -> list[Json]:
        return two_layers(at, is_located) if is_located else layer(at, 0, 0, is_located)

    found = find(facts_with(Recomputation(again=(), each_step=each), rounds))
    assert sum(one.count for one in found) == times


def test_a_step_that_trains_is_no_benchmark():
    def training(at: float, is_located: bool) -> list[Json]:
        update = annotation("Optimizer.step#SGD.step", at + 190, 5)
        return [*two_layers(at, is_located), update]

    found = find(facts_with(Recomputation(again=(), each_step=(0, 1, 2, 3, 4, 5)), training))
    assert sum(one.count for one in found) == 6


@pytest.mark.parametrize(("each", "is_benchmark"), [((0, 1, 2, 3, 4, 5), True), ((0, 1, 2, 3, 4), False)])
def test_a_benchmark_is_not_judged(each, is_benchmark):
    """Of 140 µs of operators a step 140 or 100 are computed in each."""
    facts = facts_with(Recomputation(each_step=each))
    if is_benchmark:
        with pytest.raises(CannotLook, match="as a benchmark does"):
            find(facts)
    else:
        assert find(facts)


def weights_made_anew(at: float, is_located: bool, gap: float = 30, name: str = "_weight_norm") -> list[Json]:
    """Two layers of 10 µs, each with ``gap`` of Python before and after the 20 µs in which its weight is made."""
    events: list[Json] = []
    for number, begun in enumerate((at + 2, at + 102)):
        made = op(f"aten::{name}", begun + 10 + gap, 20)
        layers = [op("aten::relu", begun, 10), made, op("aten::conv1d", begun + 30 + 2 * gap, 5)]
        marks = [mark(number, begun - 1, 95), call(number, begun + 9.5 + gap, 21)]
        events += [*layers, *(marks if is_located else [])]
    return events


def saved_of_weights(*gaps: float, name: str = "_weight_norm") -> float:
    """The microseconds of a step. Of several gaps each is that of one step."""
    known = Recomputation(each_step=(0, 1), looked_at=4)
    events, sites = [], SITES[:2]
    for number, gap in enumerate(gaps):
        events += [step(number, LENGTH * number, LENGTH), *weights_made_anew(LENGTH * number, number == 0, gap, name)]
    facts = facts_of(events, run=Run(recomputation=known), callsites=sites)
    return sum(predict_saving(facts, one.edit).fraction for one in find(facts)) * LENGTH


@pytest.mark.parametrize(
    ("gap", "python"),
    [
        pytest.param(20, 2 * 20 - 10, id="all but what the next call needs"),
        pytest.param(30, 50, id="at most what a parametrization takes"),
        pytest.param(4, 4, id="little, as around any other operator"),
    ],
)
def test_pythons_time_around_a_weight_that_is_made_anew_goes(gap, python):
    assert saved_of_weights(gap, gap, gap, gap) == pytest.approx(2 * (20 + python), abs=0.1)


def test_around_other_operators_it_stays():
    assert saved_of_weights(20, 20, 20, 20, name="pow") == pytest.approx(2 * (20 + 10), abs=0.1)


def test_where_the_program_does_more_between_two_calls_that_stays():
    """The short gaps tell what PyTorch's own Python takes: 2 * 15 - 10 µs."""
    assert saved_of_weights(15, 15, 15, 32) == pytest.approx(2 * (20 + 20), abs=0.1)
