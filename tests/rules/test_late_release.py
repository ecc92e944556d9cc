"""Waits and work after the last step."""

from __future__ import annotations

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Kind, Severity
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.late_release import late_release
from profkit.trace.events import no_trace
from tests.rules.watched import DeviceChoice, S, StackActivity, doing, line, watched
from tests.traces import facts_of, op, step

ON_GPU = DeviceChoice(build="13.0", was_initialised=True)


def tail(time_s, activity=StackActivity.OTHER, *, cpu_s=0.0, first_s=61, **more):
    return watched((doing(activity, time_s, first_s, 95, cpu_s=cpu_s), line(12, "time.sleep(600)")), **more)


def test_a_sleep_after_the_last_step_is_a_fault():
    (found,) = late_release.check(tail(10))
    assert found.message == (
        "For 10.0 s after its last step, 33 % of the run, the program waits here. It keeps what it holds."
    )
    assert (found.location.line, found.run_ns, found.kind) == (12, 10 * S, None)
    (finding,) = diagnose(tail(10)).findings
    assert (finding.kind, finding.severity) == (Kind.FAULT, Severity.HIGH)


@pytest.mark.parametrize(("time_s", "reported"), [(1.9, False), (2.1, True)])
def test_a_short_wait_is_none(time_s, reported):
    assert bool(list(late_release.check(tail(time_s)))) is reported


@pytest.mark.parametrize(("time_s", "reported"), [(3.0, False), (3.2, True)])
def test_a_small_share_is_none(time_s, reported):
    assert bool(list(late_release.check(tail(time_s, trained_s=100)))) is reported


def test_work_after_the_last_step_matters_only_if_a_device_is_held():
    assert list(late_release.check(tail(10, cpu_s=9))) == []
    (found,) = late_release.check(tail(10, cpu_s=9, choice=ON_GPU))
    assert found.kind is Kind.OPPORTUNITY
    assert "works here, without the device" in found.message


@pytest.mark.parametrize("activity", [StackActivity.SAVING, StackActivity.LOGGING])
def test_the_last_checkpoint_is_none(activity):
    assert list(late_release.check(tail(10, activity))) == []


def test_a_wait_between_the_steps_is_none():
    assert list(late_release.check(tail(10, first_s=40))) == []


def test_a_server_that_only_calls_a_model_is_none():
    facts = watched((doing(StackActivity.OTHER, 9, 61, 95), line(5, "server.serve_forever()")))
    training, waiting = facts.account.stacks
    calling = structs.replace(training, activity=StackActivity.FORWARD.value)
    place = structs.replace(facts.account.places[0], trains=False)
    account = structs.replace(
        facts.account, stacks=(calling, waiting), places=(place, *facts.account.places[1:]), is_over=True
    )
    assert list(late_release.check(Facts(no_trace(), account=account))) == []


def test_without_an_account_or_a_step_it_cannot_look():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, late_release.needs) == [Need.WHOLE_RUN]
    with pytest.raises(CannotLook, match="no step was seen"):
        list(late_release.check(facts))
