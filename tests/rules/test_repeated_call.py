"""Functions that are called again for what they gave before: which are named, and at what price."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.repeated_call import repeated_call
from profkit.run.directory import CallSite, Recomputation, RepeatedCall, Run, StackSamples
from tests.traces import facts_of, kernel, mark, op, runtime, stacks_of, step

MAIN = CallSite("train.py", 4, "main", "features(wave)")
OTHER = CallSite("train.py", 9, "main", "features(other)")
INSIDE = CallSite("train.py", 21, "features", "bank = filters()")
DEFINED = CallSite("train.py", 20, "features")
SITES = (MAIN, INSIDE, OTHER)
CALL = RepeatedCall(MAIN, "features", DEFINED, calls=16, looked_at=16, again=15, across=1, spent_ns=1_000_000)


def find(
    *calls: RepeatedCall, shares: dict[tuple[int, ...], int] | None = None, events: Any = None, **run: Any
) -> list[Suspicion]:
    events = events or [event for i in range(3) for event in (step(i, 2000 * i, 2000), op("aten::mm", 2000 * i, 1000))]
    stacks = stacks_of(SITES, shares) if shares is not None else StackSamples(reason="py-spy may not")
    facts = facts_of(events, run=Run(torch="2.13", repeated_calls=calls, **run), callsites=SITES, stacks=stacks)
    return list(repeated_call.check(facts))


def test_the_function_is_priced_by_the_samples_below_the_line():
    (found,) = find(CALL, shares={(0,): 10, (0, 1): 30, (2, 1): 20})
    assert found.message == (
        "`features` is called 16 times a step with the arguments of an earlier call of the step, and gave an equal "
        "result each time. That takes 30 % of the host's time."
    )
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == [1_400_000] * 3
    assert found.location is not None
    assert (found.location.line, found.count, found.severity) == (4, 16, None)
    assert found.evidence == {"calls_per_step": 16, "callee": "features", "share": 0.3}


def test_lines_that_call_one_function_are_one_finding():
    other = replace(CALL, site=OTHER, again=0, across=16, is_same_object=True, spent_ns=5)
    (found,) = find(replace(other, site=MAIN, spent_ns=9), other, shares={(0, 1): 30, (2, 1): 20})
    assert "32 times a step from 2 lines with the arguments of the step before, and found the same" in found.message
    assert [place.line for place in found.places.all()] == [4, 9]
    assert found.evidence["share"] == 0.5
    assert found.fix.startswith("Look it up once")


def test_what_a_repeated_function_calls_is_not_named_too():
    inner = replace(CALL, site=INSIDE, callee="filters", defined=CallSite("train.py", 30, "filters"))
    (found,) = find(inner, CALL, shares={(0, 1): 30})
    assert found.evidence["callee"] == "features"


@pytest.mark.parametrize(
    "call",
    [
        replace(CALL, differing=1),
        replace(CALL, looked_at=19),
        replace(CALL, looked_at=40, again=29, across=0),
        replace(CALL, again=0, across=0),
    ],
)
def test_one_that_gives_something_else_at_times_is_not_named(call):
    assert find(call, shares={(0, 1): 30}) == []


def test_two_calls_in_one_line_share_its_samples():
    (found,) = find(replace(CALL, of_line=32), shares={(0, 1): 40})
    assert found.evidence["share"] == 0.2


OF_VARIABLE = replace(CALL, site=INSIDE, callee="bank", calls=64, looked_at=32, again=31, across=0, is_variable=True)


def test_a_variable_that_each_call_makes_anew_is_priced_by_the_samples_of_its_lines():
    (found,) = find(OF_VARIABLE, shares={(0,): 20, (0, 1): 32})
    assert found.message == (
        "`features` makes `bank` anew in each of its 64 calls a step, and it held the same each time. That takes 32 % "
        "of the host's time."
    )
    assert found.fix.startswith("Make it once, before the loop over these calls")
    assert found.evidence == {"calls_per_step": 64, "callee": "bank", "share": 0.315}  # one of 64 has to stay
    assert found.location is not None
    assert found.location.line == 21


def test_the_lines_of_a_variable_are_one_finding_at_the_costliest():
    more = replace(OF_VARIABLE, site=OTHER)
    (found,) = find(more, OF_VARIABLE, shares={(0, 1): 32, (0, 2): 16})
    assert [place.line for place in found.places.all()] == [21, 9]
    assert found.evidence["share"] == 0.4725


@pytest.mark.parametrize(
    "call", [replace(OF_VARIABLE, looked_at=19, again=18), replace(OF_VARIABLE, again=29, looked_at=32)]
)
def test_a_variable_of_few_calls_or_of_some_others_is_not_named(call):
    assert find(call, shares={(0, 1): 32}) == []


def test_a_variable_without_samples_has_no_price():
    assert find(OF_VARIABLE) == []


def test_what_a_variable_s_line_calls_is_part_of_it():
    inner = replace(CALL, site=INSIDE, callee="filters", defined=CallSite("train.py", 30, "filters"))
    (found,) = find(inner, OF_VARIABLE, shares={(0, 1): 32})
    assert found.evidence["callee"] == "bank"


def test_a_variable_of_a_repeated_function_is_part_of_that():
    (found,) = find(OF_VARIABLE, CALL, shares={(0, 1): 32})
    assert found.evidence["callee"] == "features"


@pytest.mark.parametrize(("operator_us", "count"), [(190, 1), (210, 0)])
def test_a_function_that_computes_with_operators_is_left_to_the_other_rule(operator_us, count):
    located = [step(0, 0, 2000), mark(0, 0, 500), mark(1, 50, 400), op("aten::mm", 60, operator_us)]
    later = [event for i in (1, 2, 3) for event in (step(i, 2000 * i, 2000), op("aten::mm", 2000 * i, operator_us))]
    assert len(find(CALL, shares={(0, 1): 40}, events=located + later)) == count


def test_without_samples_one_operator_is_enough_to_leave_it():
    located = [step(0, 0, 2000), mark(0, 0, 500), mark(1, 50, 400), op("aten::mm", 60, 5)]
    later = [event for i in (1, 2, 3) for event in (step(i, 2000 * i, 2000), op("aten::mm", 2000 * i, 5))]
    assert find(CALL, events=located + later) == []
    assert len(find(CALL, events=[*located[:3], op("aten::mm", 1000, 5), *later])) == 1


def test_most_of_many_calls_are_a_part_of_the_price():
    (found,) = find(replace(CALL, calls=80, looked_at=40, again=30, across=0), shares={(0, 1): 40})
    assert "80 times a step, 75 % of them with the arguments of an earlier call of the step" in found.message
    assert found.evidence["share"] == 0.3


def test_one_that_repeats_most_is_not_named_for_what_repeats_all_inside_it():
    inner = replace(CALL, site=INSIDE, callee="filters", defined=CallSite("train.py", 30, "filters"))
    outer = replace(CALL, looked_at=40, again=30, across=0)
    stacks = {(0, 1): 40}
    assert [found.evidence["callee"] for found in find(inner, outer, shares=stacks)] == []
    assert len(find(outer, shares=stacks)) == 1


def test_boundary_of_what_it_takes():
    assert find(CALL, shares={(0, 1): 0, (0,): 60}) == []
    assert len(find(CALL, shares={(0, 1): 1})) == 1


def test_a_benchmark_repeats_all_from_step_to_step():
    each = Recomputation(each_step=(0, 1, 2, 3, 4), looked_at=5)
    across = replace(CALL, again=0, across=16)
    assert find(across, shares={(0, 1): 30}, recomputation=each) == []
    assert len(find(CALL, shares={(0, 1): 30}, recomputation=each)) == 1
    assert len(find(across, shares={(0, 1): 30}, recomputation=replace(each, looked_at=8))) == 1


def test_without_samples_the_watched_step_tells_a_range():
    (found,) = find(replace(CALL, spent_ns=200_000, looked_at=8, again=8, across=0))
    assert found.message.endswith(
        "That takes 8.0 % to 20 % of the host's time, by a step in which recording slowed Python."
    )
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == [1_720_000] * 3
    assert find(replace(CALL, spent_ns=20_000)) == []


def test_with_a_device_there_is_no_price():
    events = [
        event
        for i in range(3)
        for event in (
            step(i, 2000 * i, 2000),
            op("aten::mm", 2000 * i, 100),
            runtime("cudaLaunchKernel", 2000 * i + 10, 10, correlation=i + 1),
            kernel("gemm", 2000 * i + 100, 1000, correlation=i + 1),
        )
    ]
    (found,) = find(CALL, shares={(0, 1): 30}, events=events)
    assert (found.edit, found.severity) == (None, Severity.LOW)
    assert "30 % of the host's time" in found.message


def test_missing_data():
    for run, why in ((Run(), "what functions are given was not recorded"), (Run(torch="2.13"), "no step of the")):
        with pytest.raises(CannotLook, match=why):
            list(repeated_call.check(facts_of([step(0, 0, 100), op("aten::mm", 0, 50)], run=run)))
