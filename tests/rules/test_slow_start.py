"""What takes long before the first step, and what any program needs there."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_start import slow_start
from profkit.run.whole_run import RunAccount
from profkit.trace.events import no_trace
from tests.rules.watched import S, StackActivity, doing, line, watched
from tests.traces import facts_of, op, step


def start(activity, time_s, source="work()", **more):
    return watched((doing(activity, time_s, 1, 29), line(9, source)), **more)


@pytest.mark.parametrize(
    ("activity", "source", "words", "fix"),
    [
        (StackActivity.IMPORTING, "import transformers", "Importing what this line needs", "importtime"),
        (StackActivity.NETWORK, "download(url)", "Waiting for the network", "Fetch it once"),
        (StackActivity.LOADING, "torch.load(path)", "Reading a checkpoint", "mmap"),
        (StackActivity.COPYING, "shutil.copy(a, b)", "Copying files", "Copy before"),
        (StackActivity.CHILD, "run(['pip', 'install', 'x'])", "Waiting for another program", "image"),
        (StackActivity.CHILD, "run(['wget', url])", "Waiting for another program", "before the job"),
        (StackActivity.DATA, "next(loader)", "The wait for the first batch", "ahead"),
        (StackActivity.OTHER, "tokenize(text)", "The program's own work in this function", "save the result"),
    ],
)
def test_each_cause_is_told_at_its_line(activity, source, words, fix):
    (found,) = slow_start.check(start(activity, 10, source))
    assert found.message == f"{words}{found.message[len(words) :]}"
    assert "takes 10.0 s before the first step, 33 % of the run." in found.message
    assert fix in found.fix
    assert (found.location.line, found.run_ns) == (9, 10 * S)


def test_compiling_counts_whenever_it_happens():
    facts = watched((doing(StackActivity.COMPILING, 10, 25, 50), line(9, "model(x)")))
    (found,) = slow_start.check(facts)
    assert found.message == "Compiling what this line calls takes 10.0 s, 33 % of the run."


@pytest.mark.parametrize(
    ("time_s", "trained_s", "reported"),
    [(4.9, 20, False), (5.1, 20, True), (1.9, 5, False), (2.1, 5, True), (59, 1000, False), (61, 1000, True)],
)
def test_a_short_or_small_part_is_no_finding(time_s, trained_s, reported):
    facts = start(StackActivity.NETWORK, time_s, trained_s=trained_s)
    assert bool(list(slow_start.check(facts))) is reported


@pytest.mark.parametrize(
    ("activity", "source"),
    [
        (StackActivity.IMPORTING, "import torch"),
        (StackActivity.IMPORTING, "import os, torch, time"),
        (StackActivity.IMPORTING, "from torch import nn"),
        (StackActivity.IMPORTING, "optimizer = torch.optim.AdamW(model.parameters())"),
        (StackActivity.OTHER, "model.cuda()"),
        (StackActivity.OTHER, "x = model.to(device)"),
    ],
)
def test_what_every_program_needs_is_none(activity, source):
    assert list(slow_start.check(start(activity, 10, source))) == []


def test_the_same_after_the_first_step_is_none():
    facts = watched((doing(StackActivity.NETWORK, 10, 31, 59), line(9)))
    assert list(slow_start.check(facts)) == []


def test_a_start_is_an_opportunity_of_the_run():
    (finding,) = diagnose(start(StackActivity.NETWORK, 10)).findings
    assert (finding.rule, finding.kind, finding.severity) == ("slow-start", Kind.OPPORTUNITY, Severity.LOW)
    assert finding.saving.fraction == pytest.approx(1 / 3)
    (finding,) = diagnose(start(StackActivity.NETWORK, 20)).findings
    assert finding.severity is Severity.MEDIUM
    (finding,) = diagnose(start(StackActivity.IMPORTING, 20)).findings
    assert finding.severity is Severity.LOW


def test_the_lines_of_a_function_count_together_at_the_longest():
    parts = (doing(StackActivity.OTHER, 4, 1, 29), line(8)), (doing(StackActivity.OTHER, 6, 1, 29), line(9))
    (found,) = slow_start.check(watched(*parts))
    assert (found.location.line, found.run_ns) == (9, 10 * S)
    parts = [(stack, line(at, function="<module>")) for at, (stack, _) in enumerate(parts, 8)]
    assert [found.location.line for found in slow_start.check(watched(*parts))] == [9]


def test_without_an_account_or_a_step_it_cannot_look():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, slow_start.needs) == [Need.WHOLE_RUN]
    with pytest.raises(CannotLook, match="no step was seen"):
        list(slow_start.check(Facts(no_trace(), account=RunAccount())))
