"""Two processes share the rules: the findings are those of one, in the order of the rules."""

from __future__ import annotations

import os
import re
import sys

import pytest
from msgspec.structs import replace

from profkit.core import forks
from profkit.core.failures import OWN_ERROR, STRICT
from profkit.derive.facts import Facts
from profkit.diagnosis import judge as judging
from profkit.diagnosis import pipeline as diagnosing
from profkit.diagnosis.judge import gather, judging_tasks, no_higher_than_sure
from profkit.diagnosis.pipeline import diagnose
from profkit.diagnosis.settings import EVERYTHING
from profkit.findings.values import Diagnosis, Kind, Saving, Severity
from profkit.rules import all_rules
from profkit.run.directory import Run
from profkit.trace.events import no_trace
from tests.rules.roofs import on_device
from tests.rules.watched import S, StackActivity, doing, line, watched
from tests.savings.roofline.launching import call
from tests.snapshots import MIB, Recording, facts_of_snapshot, in_step
from tests.traces import facts_of, op, step

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="other processes judge on Linux alone"),
    # The runner of the tests has threads; the children touch nothing that these could hold.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def recording() -> Facts:
    """A loop over elements, a product in float64, and zeros filled in; some rules cannot look."""
    events = [step(i, 1000 * i, 1000) for i in range(4)]
    for at in range(0, 4000, 1000):
        events += [op("aten::select", at + 4 * i, 1, dims=[[1000], [], []], types=["float", "", ""]) for i in range(80)]
        events += [op("aten::add", at + 4 * i + 2, 1, dims=[[], []], types=["float", "float"]) for i in range(80)]
        events += [op("aten::mm", at + 500, 400, dims=[[64, 64], [64, 64]], types=["double", "double"])]
    return facts_of(events)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "_SHARED_EVENTS", 0)
    monkeypatch.setattr(forks, "processes_at_hand", lambda: 2)


def alone() -> Diagnosis:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "processes_at_hand", lambda: 1)
        return diagnose(recording())


@pytest.mark.usefixtures("shared")
def test_two_processes_give_the_same_diagnosis() -> None:
    found = diagnose(recording())
    assert {"tensor-element-loop"} <= {finding.rule for finding in found.findings}
    assert found.skipped
    assert found == alone()


@pytest.mark.usefixtures("shared", "_leaves_no_process")
def test_every_rule_is_judged_and_no_process_is_left() -> None:
    tasks = judging_tasks(recording(), EVERYTHING)
    done = forks._work_with_another(tasks)
    assert sorted(done) == list(range(len(all_rules())))
    assert [done[number].rule for number in sorted(done)] == list(all_rules())


@pytest.mark.usefixtures("shared")
def test_rules_taken_by_a_process_that_died_are_judged_by_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    here, work = os.getpid(), forks._work

    def take_three_and_die(tasks: object, numbers: int) -> dict[int, object]:
        if os.getpid() == here:
            return work(tasks, numbers)
        os.read(numbers, 3)
        os._exit(9)

    monkeypatch.setattr(forks, "_work", take_three_and_die)
    assert diagnose(recording()) == alone()


@pytest.mark.usefixtures("shared")
def test_if_no_process_can_be_started_this_one_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    assert diagnose(recording()) == alone()


@pytest.mark.usefixtures("shared")
def test_a_rule_that_breaks_in_either_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_facts: Facts, _edit: object, _size: int) -> None:
        raise RuntimeError("no price")

    monkeypatch.delenv(STRICT)
    monkeypatch.setattr(judging, "predict_saving", broken)
    reason = diagnose(recording()).skipped["tensor-element-loop"]
    assert re.fullmatch(rf"{OWN_ERROR} \(RuntimeError at diagnosis/judge.py:\d+\), please report it", reason)


def test_experiments_are_kept_only_if_they_will_be_run() -> None:
    for wanted in (True, False):
        judged, _ = gather([task() for task in judging_tasks(recording(), EVERYTHING, with_experiments=wanted)])
        assert any(one.suspicion.trial is not None for one in judged) == wanted


def test_what_a_snapshot_shows_is_found_although_no_stack_tells_its_line() -> None:
    recording, base = Recording(), 1 << 40
    recording.segment(base, 4096 * MIB, is_older=True)
    recording.alloc(base, 100 * MIB, is_older=True)
    recording.alloc(base + 1000 * MIB, 200 * MIB, is_older=True)
    recording.free(base + 1000 * MIB, in_step())
    found = diagnose(facts_of_snapshot(recording))
    assert [(one.rule, one.location, one.count) for one in found.findings] == [("optimizer-state-dominated", None, 1)]


def test_no_rule_judges_a_rank_with_only_its_collectives_recorded() -> None:
    found = diagnose(facts_of([step(i, 1000 * i, 1000) for i in range(4)], run=Run(is_light=True)))
    assert found.findings == ()
    assert set(found.skipped) == set(all_rules())
    assert set(found.skipped.values()) == {"of this rank only collectives and steps were recorded"}


def test_no_price_is_more_than_the_run() -> None:
    """The columns of a damaged account may hold more time than its stacks."""
    upload = doing(StackActivity.NETWORK, 20, 30, 60, visits=5)
    facts = watched((upload, line(9)))
    columns = tuple(tuple((at, ns * 1000) for at, ns in column) for column in facts.account.columns)
    damaged = Facts(no_trace(), facts.run, account=replace(facts.account, columns=columns))
    (found,) = [finding for finding in diagnose(damaged).findings if finding.rule == "blocked-upload"]
    assert found.saving is not None
    assert found.saving.run_ns <= 40 * S
    assert found.saving.fraction <= 1


@pytest.mark.parametrize(("others_us", "severity"), [(0, Severity.HIGH), (1_000, Severity.MEDIUM)])
def test_an_opportunity_is_high_if_the_low_end_of_its_range_is(others_us: int, severity: Severity) -> None:
    """Reading and writing at 70 % of the memory's rate instead of 39 would save 267 µs, with the low end at 60 %."""
    strided = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<> >"
    large = call("aten::add", [[8192, 8192], [8192, 8192], []], ["float", "float", "Scalar"], (strided, 610))
    others = [call("aten::nonzero", [[4]], "float", ("write_indices", others_us), at=100, number=2, on_device_at=630)]
    facts = on_device(large, *(others if others_us else []))
    (found,) = [one for one in diagnose(facts).findings if one.rule == "slow-elementwise"]
    assert found.saving is not None
    assert found.saving.fraction > 0.1
    assert found.severity is severity


@pytest.mark.parametrize(
    ("kind", "low", "severity"),
    [
        (Kind.FAULT, 0.03, Severity.HIGH),
        (Kind.FAULT, 0.029, Severity.MEDIUM),
        (Kind.OPPORTUNITY, 0.1, Severity.HIGH),
        (Kind.OPPORTUNITY, 0.099, Severity.MEDIUM),
    ],
)
def test_what_may_be_next_to_nothing_is_not_high(kind: Kind, low: float, severity: Severity) -> None:
    assert no_higher_than_sure(Severity.HIGH, Saving(1_000, 0.17, low, 0.4), kind) is severity
    assert no_higher_than_sure(Severity.LOW, Saving(1_000, 0.17, low, 0.4), kind) is Severity.LOW
    assert no_higher_than_sure(Severity.HIGH, None, kind) is Severity.HIGH, "memory that grows has no saving"
