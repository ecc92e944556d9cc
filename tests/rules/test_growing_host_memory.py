"""Memory of the process that grows while it trains, and growth that ends."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, Severity, missing_needs
from profkit.rules.growing_host_memory import growing_host_memory
from profkit.run.directory import Host, LiveHolder, LiveSample, Run
from profkit.trace.events import no_trace
from tests.rules.watched import S, watched
from tests.traces import facts_of, op, step

MIB = 1 << 20


def curve(sizes):
    """Sizes in MiB at equal distances from 30 s to 60 s, where the training is."""
    return tuple((30 * S + at * 30 * S // (len(sizes) - 1), int(size * MIB)) for at, size in enumerate(sizes))


def told(sizes):
    return list(growing_host_memory.check(watched(memory=curve(sizes))))


def test_steady_growth_is_told_with_its_rate():
    (found,) = told([500 + 10 * at for at in range(80)])
    assert found.message == (
        "The process's memory grows by 734 MB between the first step and the last, 99.4 GB an hour, and does not "
        "level off."
    )
    assert found.severity is Severity.MEDIUM


def test_a_sawtooth_that_rises_is_told():
    assert told([500 + 10 * at + 200 * (at % 5 == 0) for at in range(80)])


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([500.0] * 80, id="level"),
        pytest.param([500 + 1.5 * at for at in range(80)], id="less than 128 MB"),
        pytest.param([4000 + 9 * at for at in range(80)], id="less than a fifth"),
        pytest.param([500 + 10 * min(at, 40) for at in range(80)], id="a cache that fills"),
        pytest.param([500 + 800 * (at > 40) for at in range(80)], id="one jump"),
        pytest.param([400 + 20 * min(max(at - 30, 0), 21) + at / 10 for at in range(80)], id="level at last"),
        pytest.param([500 + 40 * (at % 20) for at in range(80)], id="freed after each epoch"),
        *(
            pytest.param([400 + 600 * (1 - math.exp(-at / 80 * share)) for at in range(80)], id=f"nears {share} of it")
            for share in (4, 2, 1)
        ),
        pytest.param([400 + 60 * (at // 12) for at in range(80)], id="six jumps"),
        pytest.param([400 + 60 * (at // 12) + 300 * (at % 12 > 9) for at in range(80)], id="six jumps, and peaks"),
    ],
)
def test_growth_that_is_small_or_ends_is_none(sizes):
    assert told(sizes) == []


@pytest.mark.parametrize(("looks", "is_told"), [(8, True), (9, False)])
def test_growth_at_the_end_of_each_epoch_is_told_after_ten_epochs(looks, is_told):
    """Nine jumps of one size, of which eight are most of the growth; or eight."""
    assert bool(told([400 + 60 * (at // looks) for at in range(80)])) is is_told


@pytest.mark.parametrize(("memory_gb", "severity"), [(2.0, Severity.HIGH), (16.0, Severity.MEDIUM)])
def test_it_is_of_high_severity_only_if_what_was_seen_reaches_so_far(memory_gb, severity):
    """99 GB an hour for half a minute: the next five minutes can be told."""
    facts = watched(memory=curve([500 + 10 * at for at in range(80)]))
    host = Host(2, 2, int(memory_gb * 1e9))
    run = replace(facts.run, host=host)
    (found,) = growing_host_memory.check(Facts(no_trace(), run, account=facts.account))
    assert "is full in" in found.message
    assert found.severity is severity


@pytest.mark.parametrize(("recorded_until_s", "is_told"), [(30, True), (37, False)])
def test_growth_that_recording_held_up_at_first_is_not_steady(recorded_until_s, is_told):
    """A cache that fills: without the recorded steps, which took longer, it is seen to slow down."""
    sizes, size = [], 400.0
    for at in range(80):
        sizes.append(size)
        size += 5 if at < 18 else 12 * math.exp(-(at - 18) / 90)
    account = watched(memory=curve(sizes)).account
    until_us = recorded_until_s * 1e6
    events = [one for at in (until_us - 200, until_us - 100) for one in (step(0, at, 99), op("aten::mm", at + 1, 9))]
    found = list(growing_host_memory.check(facts_of(events, run=Run(), account=account)))
    assert bool(found) is is_told


def test_too_few_looks_cannot_be_judged():
    with pytest.raises(CannotLook, match="fewer than 40 times"):
        told([500 + 20 * at for at in range(39)])


def test_looks_at_the_same_time_are_one():
    facts = watched(memory=((40 * S, MIB),) * 1000)
    with pytest.raises(CannotLook, match="fewer than 40 times"):
        list(growing_host_memory.check(facts))


def test_of_a_file_with_any_number_of_looks_some_are_compared():
    sizes = [500 + at / 100 for at in range(20_000)]
    assert told(sizes) == []


def test_without_an_account_it_cannot_look():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, growing_host_memory.needs) == [Need.WHOLE_RUN]
    with pytest.raises(CannotLook, match="no step was seen"):
        list(growing_host_memory.check(facts))


@pytest.mark.parametrize(
    ("nodes", "is_told"), [pytest.param((7, 14, 21, 28, 35), False, id="more graphs"), pytest.param((7,) * 5, True)]
)
def test_growth_with_names_that_keep_more_graphs_is_told_of_these(nodes, is_told):
    samples = tuple(LiveSample(at, (LiveHolder("losses", None, 1, count, 4, 1),)) for at, count in enumerate(nodes))
    events = [one for at in range(5) for one in (step(at, 100 * at, 100), op("aten::mm", 100 * at + 1, 9))]
    account = watched(memory=curve([500 + 10 * at for at in range(80)])).account
    found = list(growing_host_memory.check(facts_of(events, live=samples, account=account)))
    assert bool(found) == is_told
