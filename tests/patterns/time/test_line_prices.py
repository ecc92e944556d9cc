"""What lines cost, by samples: exact shares, their intervals, and what does not count."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.time.line_prices import (
    batch_function,
    batch_prices,
    line_prices,
    lines_outside,
    thread_prices,
    worker_function,
    worker_prices,
)
from profkit.run.directory import CallSite, Run, SampledStack, SampledThread, StackSamples
from tests.traces import annotation, facts_of, mark, op, step, trace_of

MS = 1_000_000
SITES = tuple(CallSite("/w/train.py", line, "main" if line < 20 else "Set.__getitem__") for line in (4, 5, 21, 22))


def sampled(*stacks: SampledStack, total_ms: int = 1000, kind: str = "main", events: Any = None) -> Facts:
    trace = trace_of(events or [step(0, 0, 100)])
    samples = StackSamples(
        period_ns=5 * MS, steps=9, threads=(SampledThread(kind, "", total_ms * MS),), sites=SITES, stacks=stacks
    )
    return Facts(trace, Run(torch="2.13"), callsites=SITES, stacks=samples)


def stack(*lines: int, ms: int, callee: str = "", batch_from: int = -1, thread: int = 0) -> SampledStack:
    return SampledStack(thread, lines, callee, ms * MS, batch_from)


def test_a_line_has_what_it_calls_and_itself_only_what_no_other_line_does():
    first, second = line_prices(sampled(stack(0, ms=300), stack(0, 1, ms=600, callee="copy.deepcopy")))
    assert (first.site.line, first.own_share, first.share, first.callee) == (5, 0.6, 0.6, "copy.deepcopy")
    assert (second.site.line, second.own_share, second.share, second.callee) == (4, 0.3, pytest.approx(0.9), "")
    assert first.thread == "main"


def test_the_interval_is_that_of_half_the_samples():
    """200 samples count as 100: Wilson's interval of 60 in 100."""
    (price,) = line_prices(sampled(stack(0, ms=600)))
    assert (price.low, price.high) == (pytest.approx(0.502, abs=1e-3), pytest.approx(0.691, abs=1e-3))


@pytest.mark.parametrize(("total_ms", "known"), [(150, True), (149, False)])
def test_thirty_samples_price_every_line(total_ms, known):
    assert bool(line_prices(sampled(stack(0, ms=30), total_ms=total_ms))) is known


@pytest.mark.parametrize(
    ("samples", "share", "known"), [(16, 0.75, True), (16, 0.5, False), (10, 0.9, True), (9, 1.0, False)]
)
def test_few_samples_price_a_line_that_surely_takes_a_quarter(samples, share, known):
    prices = line_prices(sampled(stack(0, ms=round(share * samples * 5)), total_ms=samples * 5))
    assert [price.share for price in prices] == ([pytest.approx(share, abs=0.01)] if known else [])
    assert all(price.low >= 0.25 for price in prices)


@pytest.mark.parametrize(("ms", "callee"), [(400, "json.loads"), (399, "")])
def test_a_callee_takes_four_fifths_of_its_line(ms, callee):
    (price,) = line_prices(sampled(stack(0, ms=ms, callee="json.loads"), stack(0, ms=500 - ms, callee="len")))
    assert price.callee == callee


def test_a_line_twice_on_a_stack_counts_once():
    prices = line_prices(sampled(stack(0, 1, 0, ms=500)))
    assert {price.site.line: (price.own_share, price.share) for price in prices} == {4: (0.5, 0.5), 5: (0, 0.5)}


def test_without_samples_and_with_damaged_ones_there_are_no_prices():
    assert line_prices(facts_of([step(0, 0, 100)])) == ()
    assert line_prices(sampled(stack(9, ms=500), stack(-1, ms=500), stack(0, ms=500, thread=3), stack(ms=5))) == ()


def test_workers_and_threads_have_prices_of_their_own():
    assert [price.site.line for price in worker_prices(sampled(stack(2, ms=500, batch_from=0), kind="worker"))] == [21]
    threads = (SampledThread("thread", "producer", 1000 * MS), SampledThread("thread", "logger", 500 * MS))
    both = (stack(2, ms=500), stack(0, ms=400, thread=1))
    samples = StackSamples(period_ns=5 * MS, threads=threads, sites=SITES, stacks=both)
    prices = thread_prices(Facts(trace_of([step(0, 0, 100)]), stacks=samples))
    assert [(price.thread, price.site.line, price.share) for price in prices] == [
        ("producer", 21, 0.5),
        ("logger", 4, 0.8),
    ]
    assert line_prices(sampled(stack(2, ms=500), kind="worker")) == ()


def test_the_lines_of_a_batch_have_shares_of_its_making():
    facts = sampled(stack(0, 2, ms=300, batch_from=1), stack(0, 3, ms=100, batch_from=1), stack(0, 1, ms=500))
    facts_alone = sampled(stack(0, 2, ms=300, batch_from=1), stack(0, ms=100, batch_from=1))
    assert [(price.site.line, price.own_share) for price in batch_prices(facts)] == [(21, 0.75), (22, 0.25)]
    assert [(price.site.line, price.own_share) for price in batch_prices(facts_alone)] == [(21, 0.75)]
    function = batch_function(facts)
    assert function is not None
    assert (function.name, function.share, function.line.site.line) == ("Set.__getitem__", 1.0, 21)
    assert worker_function(facts) is None


def test_outside_of_pytorch_is_what_neither_operators_nor_batches_take():
    events = [
        step(0, 0, 100),
        mark(0, 0, 50),
        op("aten::mm", 0, 40),
        step(1, 100, 100),
        op("aten::mm", 100, 40),
        annotation("other", 150, 10),
    ]
    facts = sampled(stack(0, ms=700), stack(1, ms=200), stack(1, 2, ms=100, batch_from=1), events=events)
    first, second = lines_outside(facts)
    assert (first.price.site.line, first.outside) == (4, pytest.approx(0.3))
    assert (second.price.site.line, second.outside) == (5, pytest.approx(0.2))
    inside = SampledStack(0, (0,), "Linear.forward", 500 * MS, in_torch=True)
    calling = sampled(inside, stack(0, ms=200), stack(1, ms=100), events=events)
    assert [(line.price.site.line, line.outside) for line in lines_outside(calling)] == [
        (4, pytest.approx(0.2)),  # its operators are among those in PyTorch's Python
        (5, pytest.approx(0.1)),
    ]
