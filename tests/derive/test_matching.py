"""Measured steps get the shapes of the located step where no guess is needed."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.trace.events import NONE
from tests.traces import facts_of, mark, memory, op, rows_named, step

FLOATS = '["float"]'


def located(at: float) -> list[dict[str, object]]:
    return [
        step(0, at, 90),
        mark(1, at + 5, 80),
        op("aten::mul", at + 10, 5, dims="[[4]]", types=FLOATS),
        op("aten::mul", at + 30, 5, dims="[[8]]", types=FLOATS, concrete='["2"]'),
    ]


def _dims(facts: Facts, name: str) -> list[str]:
    return [facts.trace.text_of(code) for code in facts.trace.events.dims_code[rows_named(facts.trace, name)]]


def test_a_step_without_shapes_gets_those_of_the_located_step():
    facts = facts_of([*located(0), step(1, 100, 90), op("aten::mul", 110, 5), op("aten::mul", 130, 5)])
    assert _dims(facts, "aten::mul") == ["[[4]]", "[[8]]"] * 2
    last = rows_named(facts.trace, "aten::mul")[-1]
    assert facts.trace.text_of(facts.trace.events.types_code[last]) == FLOATS
    assert facts.trace.text_of(facts.trace.events.concrete_code[last]) == '["2"]'
    assert facts.operators.elements[rows_named(facts.trace, "aten::mul")].tolist() == [4, 8, 4, 8]


def test_no_shape_is_guessed_if_the_counts_differ():
    facts = facts_of([*located(0), step(1, 100, 90), op("aten::mul", 110, 5)])
    assert _dims(facts, "aten::mul") == ["[[4]]", "[[8]]", ""]
    assert facts.lines.site[rows_named(facts.trace, "aten::mul")].tolist() == [1, 1, 1]


def test_an_operator_that_allocates_more_than_its_match_gets_no_shape():
    facts = facts_of(
        [
            *located(0),
            memory(31, 32, 1),
            step(1, 100, 90),
            op("aten::mul", 110, 5),
            op("aten::mul", 130, 5),
            memory(131, 64, 2),
            step(2, 200, 90),
            op("aten::mul", 210, 5),
            op("aten::mul", 230, 5),
            memory(231, 32, 3),
        ]
    )
    assert _dims(facts, "aten::mul")[2:] == ["[[4]]", "", "[[4]]", "[[8]]"]


def test_recorded_shapes_are_kept():
    facts = facts_of([*located(0), step(1, 100, 90), op("aten::mul", 110, 5, dims="[[8]]"), op("aten::mul", 130, 5)])
    assert _dims(facts, "aten::mul")[2] == "[[8]]"


def test_an_operator_missing_in_the_located_step_gets_no_shape():
    facts = facts_of([*located(0), step(1, 100, 90), op("aten::add", 110, 5)])
    assert _dims(facts, "aten::add") == [""]
    assert facts.repeats.row[rows_named(facts.trace, "aten::add")].tolist() == [NONE]


def test_without_a_located_step_no_shapes_are_copied():
    facts = facts_of([step(0, 0, 90), op("aten::mul", 10, 5, dims="[[4]]"), step(1, 100, 90), op("aten::mul", 110, 5)])
    assert _dims(facts, "aten::mul") == ["[[4]]", ""]
