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
    assert found.message == f"This line runs at least 3 times {where} and takes 6.00 s, 23 % of the run."
    assert found.run_ns == 4 * S


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
