"""Work that is done anew between the epochs, and work that is done once."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import Kind, Severity
from profkit.rules.base import Need, missing_needs
from profkit.rules.repeated_epoch_work import repeated_epoch_work
from profkit.run.directory import CallSite, Run
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from profkit.trace.events import no_trace
from tests.patterns.looks import BATCH, BEGUN_NS, CALLED, DRAW, EVALUATE, UPDATE, looked_at, slow_steps
from tests.traces import facts_of, op, step

S = 1_000_000_000
TRAIN, READ = (
    Place(CallSite("train.py", 4, "main"), loop=3, trains=True),
    Place(CallSite("train.py", 2, "main"), loop=1),
)
PARSE = Place(CallSite("data.py", 9, "parse"), loop=8)


def find(read_s, *, at=(10, 30, 50), activity=StackActivity.OTHER):
    """20 s of training; ``at`` these seconds the program reads, for ``read_s`` in all."""
    training = StackTime(StackActivity.BACKWARD.value, (0,), 20 * S, 0, 5 * S, 90 * S, 99, 3)
    reading = StackTime(activity.value, (1, 2), int(read_s * S), 0, 3 * S, 95 * S, 9, len(at))
    columns = [((1, int(read_s * S / len(at))),) if n in at else ((0, S),) for n in range(91)]
    account = RunAccount(0, S, 100 * S, (TRAIN, READ, PARSE), (training, reading), S, tuple(columns), is_over=True)
    return list(repeated_epoch_work.check(Facts(no_trace(), Run(torch="2.13"), account=account)))


def test_reading_a_file_in_each_epoch_is_an_opportunity_at_the_line_beside_the_training():
    (found,) = find(6)
    assert (found.location.file, found.location.line) == ("train.py", 2)
    assert (repeated_epoch_work.kind, found.severity) == (Kind.OPPORTUNITY, Severity.MEDIUM)
    where = "between two runs of the loop that trains"
    told = f"This line takes 6.00 s, 23 % of the run: it runs at least 3 times {where}."
    assert found.message == told + " Most of that passes at data.py:9."
    assert [(place.file, place.line) for place in found.also] == [("data.py", 9)]
    assert found.run_ns == 4 * S


@pytest.mark.parametrize(("at", "spared_s"), [((2, 10, 30, 50), 6), ((10, 30, 50, 80), 6)])
def test_the_one_before_the_first_step_is_the_one_that_stays(at, spared_s):
    (found,) = find(8, at=at)
    assert found.run_ns == spared_s * S


@pytest.mark.parametrize(("read_s", "reported"), [(2.1, False), (2.4, True)])
def test_less_than_a_tenth_of_the_run_is_bookkeeping(read_s, reported):
    assert bool(find(read_s)) is reported


def test_reading_it_once_is_no_fault():
    assert find(6, at=(10,)) == []


def test_reading_it_before_the_first_step_and_after_the_last_is_no_fault():
    assert find(6, at=(2, 3, 30)) == []


@pytest.mark.parametrize(
    "activity", [StackActivity.SAVING, StackActivity.DATA, StackActivity.NETWORK, StackActivity.PROFKIT]
)
def test_other_phases_are_not_counted(activity):
    assert find(6, activity=activity) == []


def test_a_recording_without_an_account_cannot_be_looked_at():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, repeated_epoch_work.needs) == [Need.WHOLE_RUN]


MS = 1_000_000


def watched(columns, later_ms):
    """Steps that end with the last column, of 100 ms each."""
    later = tuple(int(ms * MS) for ms in later_ms)
    run = Run(torch="2.13", later_step_ns=later, timed_until_ns=BEGUN_NS + 100 * MS * len(columns))
    return list(repeated_epoch_work.check(Facts(no_trace(), run, account=looked_at(columns))))


def test_a_sampler_that_makes_the_first_batch_of_each_epoch_late_is_named():
    (found,) = watched(*slow_steps(BATCH))
    assert (found.location.file, found.location.line) == ("data.py", 9)
    assert [place.line for place in found.also] == [42]
    assert found.severity is Severity.MEDIUM
    assert found.run_ns == pytest.approx(4 * 180 * MS, rel=0.01)
    assert "4 steps waited much longer for a batch than the others, mostly while it ran." in found.message


def test_a_sampler_that_takes_its_time_for_each_batch_makes_no_start_late():
    assert watched([{UPDATE: 50 * MS, BATCH: 50 * MS}] * 20, [20.0] * 100) == []


def test_less_than_a_tenth_at_an_epoch_s_start_is_bookkeeping():
    columns, steps = slow_steps(BATCH, count=1)
    assert watched([{UPDATE: 100 * MS}] * 20 + columns, [20.0] * 100 + steps) == []


@pytest.mark.parametrize("ms", [90, 60])
def test_lines_of_one_sampler_count_together(ms):
    """Each of two lines takes less than a tenth of the run."""
    columns, steps = slow_steps(BATCH, ms=ms)
    halves = [
        {BATCH: column[BATCH] // 2, DRAW: column[BATCH] // 2, **{k: v for k, v in column.items() if k != BATCH}}
        if BATCH in column
        else column
        for column in columns
    ]
    found = watched([{UPDATE: 100 * MS}] * (10 if ms == 90 else 30) + halves, [20.0] * 50 + steps)
    assert len(found) == (ms == 90)
    for one in found:
        assert one.message.startswith("This line and 1 other take")
        assert {place.line for place in (one.location, *one.also)} == {9, 10, 42}


def test_work_between_the_epochs_that_long_steps_hold_is_told_as_such():
    (found,) = watched(*slow_steps(EVALUATE))
    assert "between two runs of the loop that trains" in found.message
    assert (found.location.line, found.severity) == (50, Severity.MEDIUM)


@pytest.mark.parametrize(("beside_ms", "severity"), [(30, Severity.MEDIUM), (15, Severity.LOW), (8, None)])
def test_work_beside_the_loop_that_trains_in_each_step_is_told_as_such(beside_ms, severity):
    """As around a loop over tasks or micro-batches: no step is longer than the others."""
    columns = [{UPDATE: (90 - beside_ms) * MS, CALLED: 10 * MS, EVALUATE: beside_ms * MS}] * 20
    split = [
        {**column, EVALUATE: 0} if at % 2 else {**column, EVALUATE: 2 * beside_ms * MS}
        for at, column in enumerate(columns)
    ]
    found = watched(split, [20.0] * 100)
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all("runs in each step, beside the loop in it that trains" in one.message for one in found)


@pytest.mark.parametrize(("imports_s", "share"), [(0, "13 %"), (30, "5.7 %, and 13 %")])
def test_what_comes_once_before_the_first_step_makes_nothing_small(imports_s, share):
    """A run of seconds that tries a program out is mostly imports, one of hours is not."""
    training = StackTime(StackActivity.BACKWARD.value, (0,), 20 * S, 0, 40 * S, 90 * S, 99, 3)
    reading = StackTime(StackActivity.OTHER.value, (1, 2), 3 * S, 0, 45 * S, 80 * S, 9, 3)
    importing = StackTime(StackActivity.IMPORTING.value, (), imports_s * S, 0, 1 * S, 31 * S, 9, 1)
    columns = [((1, S),) if n in (50, 60, 70) else ((0, S),) if n >= 40 else ((2, S),) for n in range(91)]
    stacks = (training, reading, importing)
    account = RunAccount(0, S, 100 * S, (TRAIN, READ, PARSE), stacks, S, tuple(columns), is_over=True)
    (found,) = repeated_epoch_work.check(Facts(no_trace(), Run(torch="2.13"), account=account))
    first, _, rest = share.partition(", and ")
    assert f", {first} of the run" in found.message
    assert (f"and {rest} of what follows its start" in found.message) is bool(rest)
