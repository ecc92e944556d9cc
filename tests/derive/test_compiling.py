"""Where the compiler worked, whose function that was, and the steps that are left out for it."""

from __future__ import annotations

import numpy as np

from profkit.evidence.compiling import compilations, describe_left_out, frame_of_regions, has_compiler_events
from tests.traces import annotation, facts_of, mark, op, rows_named, step

COMPILES = "_compile.compile_inner (dynamo_timed)"


def steps_of(*compiled: bool, located: int = 0):
    """Steps of 1000 µs, those told with 300 µs of the compiler; the first ones located."""
    events = []
    for i, does in enumerate(compiled):
        events += [step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 100)]
        events += [mark(0, 1000 * i, 100)] if i < located else []
        events += [op(COMPILES, 1000 * i + 200, 300)] if does else []
    return facts_of(events)


def test_a_step_that_compiles_is_left_out_where_most_do_not():
    facts = steps_of(False, True, False)
    assert facts.steps.measured.tolist() == [True, False, True]
    assert describe_left_out(facts) == (
        "PyTorch compiled for 300 µs in 1 recorded step: left out of the measured ones, as most compile nothing"
    )


def test_where_half_of_them_compile_that_is_what_the_steps_are_like():
    facts = steps_of(False, True, False, True)
    assert facts.steps.measured.all()
    assert describe_left_out(facts) is None


def test_a_lone_step_stays():
    assert steps_of(True).steps.measured.tolist() == [True]


def test_what_a_located_step_compiles_is_no_matter():
    facts = steps_of(True, False, False, located=1)
    assert facts.steps.measured.tolist() == [False, True, True]
    assert describe_left_out(facts) is None


def test_a_step_left_out_as_cold_is_not_said_to_have_compiled():
    facts = facts_of([step(0, 0, 3000), step(1, 3000, 1000), step(2, 4000, 1000), op("aten::mm", 0, 10)])
    assert facts.steps.measured.tolist() == [False, True, True]
    assert describe_left_out(facts) is None


def test_the_compilers_pieces_of_work_are_of_the_function_noted_last():
    facts = facts_of([
        op(COMPILES, 0, 10), annotation("dynamo_data: compile_id=3/1", 20, 1), op(COMPILES, 30, 100),
        annotation("backend_compile_data: fn_name=f, compile_id=3/1", 40, 1), op("backend (dynamo_timed)", 50, 20),
        annotation("dynamo_data: compile_id=!0/12/0", 140, 1), op(COMPILES, 150, 10),
    ])  # fmt: skip
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
