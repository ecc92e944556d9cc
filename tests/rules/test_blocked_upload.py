"""Waits for the network, copies and other programs while training stands still."""

from __future__ import annotations

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Kind
from profkit.rules.base import Need, missing_needs
from profkit.rules.blocked_upload import blocked_upload
from profkit.run.directory import Run
from profkit.trace.events import no_trace
from tests.rules.watched import S, StackActivity, doing, line, watched
from tests.traces import facts_of, op, step


def sending(activity, time_s, *, visits=3, first_s=31, last_s=59):
    return watched((doing(activity, time_s, first_s, last_s, visits=visits), line(7, "upload(metrics)")))


@pytest.mark.parametrize(
    ("activity", "words", "kind"),
    [
        (StackActivity.NETWORK, "the network", Kind.FAULT),
        (StackActivity.COPYING, "files to be copied", Kind.FAULT),
        (StackActivity.CHILD, "another program", Kind.OPPORTUNITY),
        (StackActivity.ASKING, "input", Kind.OPPORTUNITY),
    ],
)
def test_each_wait_is_told_at_its_line(activity, words, kind):
    (finding,) = diagnose(sending(activity, 3)).findings
    assert (finding.rule, finding.kind, finding.location.line) == ("blocked-upload", kind, 7)
    assert finding.message == (
        f"3.00 s of the run (13 %) passes here, waiting for {words}. Training stops for it at least 3 times."
    )
    assert finding.saving.run_ns == 3 * S


@pytest.mark.parametrize(("activity", "counted_s"), [(StackActivity.ASKING, 4), (StackActivity.NETWORK, 3)])
def test_a_question_after_the_last_step_counts_and_an_upload_there_does_not(activity, counted_s):
    """A thread's upload has to end before the program does."""
    (found,) = blocked_upload.check(sending(activity, 4, visits=4, last_s=75))
    assert found.run_ns == counted_s * S


def test_a_long_wait_after_the_last_step_is_another_one():
    facts = sending(StackActivity.ASKING, 3)
    after = tuple(((1, S),) if 70 <= at < 75 else column for at, column in enumerate(facts.account.columns))
    (found,) = blocked_upload.check(Facts(no_trace(), Run(), account=structs.replace(facts.account, columns=after)))
    assert found.run_ns == 3 * S


@pytest.mark.parametrize(("time_s", "reported"), [(0.6, False), (0.66, True)])
def test_less_than_three_per_cent_is_none(time_s, reported):
    assert bool(list(blocked_upload.check(sending(StackActivity.NETWORK, time_s)))) is reported


def test_a_single_one_is_none():
    assert list(blocked_upload.check(sending(StackActivity.NETWORK, 3, visits=1, first_s=40, last_s=43))) == []


def test_one_before_the_first_step_is_none():
    assert list(blocked_upload.check(sending(StackActivity.NETWORK, 3, first_s=1, last_s=20))) == []


@pytest.mark.parametrize("activity", [StackActivity.DATA, StackActivity.LOGGING, StackActivity.SAVING])
def test_what_other_rules_judge_is_none(activity):
    assert list(blocked_upload.check(sending(activity, 3))) == []


def test_without_an_account_it_cannot_look():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, blocked_upload.needs) == [Need.WHOLE_RUN]
