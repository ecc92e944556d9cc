"""Where the compiler worked, for which function, and which steps are left out because of it."""

from __future__ import annotations

import numpy as np

from profkit.patterns.compiling import compilations, describe_left_out, frame_of_regions, has_compiler_events
from tests.traces import annotation, facts_of, mark, op, rows_named, step

COMPILES = "_compile.compile_inner (dynamo_timed)"


def steps_of(*compiled: bool, located: int = 0):
    """Steps of 1000 µs, of which some compile for 300 µs; the first ``located`` ones have line marks."""
    events = []
    for i, does in enumerate(compiled):
        events += [step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 100)]
        events += [mark(0, 1000 * i, 100)] if i < located else []
        events += [op(COMPILES, 1000 * i + 200, 300)] if does else []
    return facts_of(events)


def test_a_step_that_compiles_is_left_out_if_most_do_not():
    facts = steps_of(False, True, False)
    assert facts.steps.measured.tolist() == [True, False, True]
    assert describe_left_out(facts) == (
        "PyTorch compiled for 300 µs in 1 recorded step: left out of the measured ones, as most compile nothing"
    )


def test_no_step_is_left_out_if_half_of_them_compile():
    facts = steps_of(False, True, False, True)
    assert facts.steps.measured.all()
    assert describe_left_out(facts) is None


def test_an_only_step_is_kept_although_it_compiles():
    assert steps_of(True).steps.measured.tolist() == [True]


def test_compilation_in_a_located_step_is_ignored():
    facts = steps_of(True, False, False, located=1)
    assert facts.steps.measured.tolist() == [False, True, True]
    assert describe_left_out(facts) is None


def test_a_step_left_out_as_cold_is_not_reported_as_compiling():
    facts = facts_of([step(0, 0, 3000), step(1, 3000, 1000), step(2, 4000, 1000), op("aten::mm", 0, 10)])
    assert facts.steps.measured.tolist() == [False, True, True]
    assert describe_left_out(facts) is None


def test_work_of_the_compiler_belongs_to_the_function_noted_last():
    facts = facts_of(
        [
            op(COMPILES, 0, 10),
            annotation("dynamo_data: compile_id=3/1", 20, 1),
            op(COMPILES, 30, 100),
            annotation("backend_compile_data: fn_name=f, compile_id=3/1", 40, 1),
            op("backend (dynamo_timed)", 50, 20),
            annotation("dynamo_data: compile_id=!0/12/0", 140, 1),
            op(COMPILES, 150, 10),
        ]
    )
    rows, frame = compilations(facts)
    assert rows.tolist() == rows_named(facts.trace, COMPILES)
    assert frame.tolist() == [-1, 3, 12]


def test_regions_carry_the_number_of_their_function():
    names = ("Torch-Compiled Region: 12/3", "Torch-Compiled Region", "aten::mm")
    facts = facts_of([op(name, 20 * i, 10) for i, name in enumerate(names)])
    assert frame_of_regions(facts).tolist() == [12, -1, -1]
    assert has_compiler_events(facts)
    assert not has_compiler_events(facts_of([op("aten::mm", 0, 5)]))


def test_a_recording_without_the_compiler_has_none():
    rows, frame = compilations(facts_of([op("aten::mm", 0, 5)]))
    assert np.concatenate([rows, frame]).tolist() == []
