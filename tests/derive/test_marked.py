"""Where every recorded step has its lines marked, each line keeps what it takes of plain steps."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.derive.facts import Facts
from profkit.patterns.program import spent_ns
from profkit.run.directory import CallSite, Run, StackSamples
from profkit.savings import remove
from profkit.savings.simulate import predict_saving
from profkit.savings.step_time import step_time
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, stacks_of, step

SITES = (CallSite("train.py", 10, "read"), CallSite("train.py", 20, "train"), CallSite("train.py", 10, "read"))
LOOP, PRODUCT = 0, 1


def marked(samples: StackSamples | None, *more, reference_us: int = 200) -> Facts:
    """A millisecond: 40 rounds of a loop take 800 µs of it, and a product 200. A plain step takes 200 µs."""
    rounds = [op("aten::select", 20 * number + 10, 0.2) for number in range(40)]
    marks = [mark(LOOP if number % 2 else 2, 20 * number, 20) for number in range(40)]
    events = [step(0, 0, 1000), *rounds, *marks, mark(PRODUCT, 800, 200), op("aten::mm", 810, 90), *more]
    run = Run(reference_step_ns=(1000 * reference_us,))
    return facts_of(events, run=run, callsites=SITES, stacks=samples)


def left_us(facts: Facts) -> tuple[float, float]:
    """What is left of the loop's marks and of the product's."""
    rows = np.array(rows_named(facts.trace, "profkit.line#0", "profkit.line#1", "profkit.line#2"))
    left = spent_ns(facts, rows) / 1000
    is_product = facts.trace.events.site[rows] == PRODUCT
    return float(left[~is_product].sum()), float(left[is_product].sum())


@pytest.mark.parametrize(("share", "loop_us"), [(50, 100), (20, 40), (5, 10)])
def test_a_line_keeps_its_share_of_plain_steps(share, loop_us):
    facts = marked(stacks_of(SITES, {(LOOP,): share, (PRODUCT,): 100 - share}))
    assert left_us(facts) == (pytest.approx(loop_us, abs=1), pytest.approx(max(200 - loop_us, 90), abs=1))


def test_what_calls_another_line_keeps_its_own_share():
    """Of a stack only the last line is at work."""
    facts = marked(stacks_of(SITES, {(PRODUCT, LOOP): 30, (PRODUCT,): 70}))
    assert left_us(facts)[0] == pytest.approx(60, abs=1)


@pytest.mark.parametrize("samples", [None, "recorded"])
def test_without_samples_of_plain_steps_each_edge_costs_the_same(samples):
    """82 edges of the loop's operators and marks, 4 of the product's: the loop loses nearly all that is lost."""
    told = replace(stacks_of(SITES, {(LOOP,): 5, (PRODUCT,): 95}), were_recorded=True) if samples else None
    loop_us, product_us = left_us(marked(told))
    assert loop_us + product_us == pytest.approx(200, abs=2)
    assert loop_us == pytest.approx(40, abs=45)
    assert product_us > 110


def test_few_samples_are_weighed_with_four_more():
    few = stacks_of(SITES, {(LOOP,): 50, (PRODUCT,): 50})
    few = replace(few, period_ns=few.threads[0].time_ns // 4)
    even, half = left_us(marked(None))[0], 100.0
    assert left_us(marked(few))[0] == pytest.approx((even + half) / 2, abs=1)


def test_a_price_follows():
    """A loop that takes 5 % of plain steps is worth no more, though it is 80 % of the marked one."""
    facts = marked(stacks_of(SITES, {(LOOP,): 5, (PRODUCT,): 95}))
    rows = np.array(rows_named(facts.trace, "profkit.line#0", "profkit.line#2"))
    saving = predict_saving(facts, remove(rows, rows[:0], 0.0))
    assert saving.fraction == pytest.approx(0.05, abs=0.01)
    assert saving.high < 0.1


def test_only_where_all_steps_are_marked_and_take_longer_than_plain_ones():
    samples = stacks_of(SITES, {(LOOP,): 5, (PRODUCT,): 95})
    assert marked(samples, reference_us=1000).marks_by_line.total_ns == 0
    assert marked(samples, step(1, 1000, 300), op("aten::mm", 1010, 90)).marks_by_line.total_ns == 0
    launched = [runtime("cudaLaunchKernel", 811, 1, correlation=1), kernel("mm", 820, 5, correlation=1)]
    assert marked(samples, *launched).marks_by_line.total_ns == 0


def test_a_collection_that_tracing_caused_goes_first():
    samples = stacks_of(SITES, {(LOOP,): 50, (PRODUCT,): 50})
    facts = marked(samples, annotation("profkit.gc#2.automatic", 920, 60))
    assert facts.disturbance.covered_within(920_000, 980_000) == 60_000
    assert left_us(facts) == (pytest.approx(100, abs=1), pytest.approx(100, abs=1))


def test_the_account_of_the_step_follows():
    """As recorded Python takes nearly all of the step. In plain steps the product's line takes nearly all."""
    time = step_time(marked(stacks_of(SITES, {(LOOP,): 5, (PRODUCT,): 95})))
    rows = {label: ns / 1000 for label, ns in time.rows}
    recorded = {label: ns / 1000 for label, ns in time.recorded_rows}
    assert recorded["Python in line train.py:10"] == pytest.approx(792)
    assert rows["Python in line train.py:20"] == pytest.approx(100, abs=2)
    assert rows["operators of the forward pass and others"] == pytest.approx(98, abs=1)
    assert sum(rows.values()) == pytest.approx(200, abs=0.1)
