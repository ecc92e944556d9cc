"""What takes long before the first step, and what any program needs there."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_start import slow_start
from profkit.run.directory import GeneratedCode, Run
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


def compiling(generated, *times_s):
    seen = [(doing(StackActivity.COMPILING, s, 1, 29), line(9 + at, "model(x)")) for at, s in enumerate(times_s)]
    facts = watched(*seen)
    return list(slow_start.check(Facts(no_trace(), Run(generated=generated), account=facts.account)))


def test_what_a_warm_cache_would_have_spared_is_told():
    (found,) = compiling(GeneratedCode(hits=1, misses=3, generating_ns=7 * S), 10)
    assert found.message.endswith(
        "A warm cache would have spared about 7.00 s: the code of 3 of 4 graphs was not in it."
    )
    assert found.run_ns == found.evidence["spared_ns"] == 7 * S
    assert found.run_uncertainty == 0.2
    assert "TORCHINDUCTOR_CACHE_DIR" in found.fix


def test_two_lines_share_what_it_would_have_spared_and_no_more_than_they_took():
    first, second = compiling(GeneratedCode(misses=2, generating_ns=12 * S), 18, 18)
    assert (first.run_ns, second.run_ns) == (6 * S, 6 * S)
    (found,) = compiling(GeneratedCode(misses=2, generating_ns=50 * S), 12)
    assert found.run_ns == 12 * S


def test_a_cache_that_was_warm_cannot_spare_more():
    (found,) = compiling(GeneratedCode(hits=2, spared_ns=30 * S), 10)
    assert found.message.endswith(
        "The code of all 2 graphs came out of the cache, which spared 30.0 s: what is left is tracing and loading."
    )
    assert "CACHE_DIR" not in found.fix
    assert found.run_ns == 10 * S


@pytest.mark.parametrize("generated", [None, GeneratedCode(misses=2)])
def test_a_compiler_that_does_not_tell_leaves_the_bound(generated):
    (found,) = compiling(generated, 10)
    assert found.message.endswith("33 % of the run.")
    assert found.run_ns == 10 * S


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
