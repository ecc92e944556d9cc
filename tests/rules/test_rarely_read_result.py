"""Results that are computed in each step and read under a condition."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.rarely_read_result import rarely_read_result
from profkit.run.directory import CallSite, Remark, Run, StackSamples
from profkit.source import remark_kinds as kinds
from tests.traces import annotation, facts_of, kernel, mark, op, runtime, stacks_of, step

COPIES = CallSite("train.py", 8, "Keeper.update", "state = copy.deepcopy(model.state_dict())")
USES = CallSite("train.py", 10, "Keeper.update", "self.state = state")
TRAINS = CallSite("train.py", 20, "main", "loss = train(model)")
SITES = (COPIES, USES, TRAINS)
OPEN = Remark(kinds.RARELY_READ, COPIES, until=8, used_at=10)
NUMBER = replace(OPEN, every=25)


def find(
    remark: Remark = OPEN, share: int | None = 40, ran: tuple[int, ...] = (0,), events: Any = (), **run: Any
) -> list[Suspicion]:
    steps = [event for i in range(3) for event in (step(i, 2000 * i, 2000), op("aten::mm", 2000 * i, 1000))]
    marks = [mark(site, 1100 + 100 * number, 50) for number, site in enumerate(ran)]
    stacks = StackSamples() if share is None else stacks_of(SITES, {(0,): share, (2,): 100 - share})
    known = {"torch": "2.13", "remarks": (remark,), **run}
    facts = facts_of([*steps, *marks, *events], run=Run(**known), callsites=SITES, stacks=stacks)
    return list(rarely_read_result.check(facts))


def test_a_copy_that_is_kept_if_it_is_the_best():
    (found,) = find()
    assert found.message == (
        "This line runs in each step and takes 40 % of the host's time, but its result is only used if a condition "
        "holds, as in the marked step it did not: from line 10 on."
    )
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == pytest.approx([1_280_000] * 2, abs=1)  # nine tenths of 40 % go
    assert found.location is not None
    assert found.location.line == 8
    assert found.evidence == {"share": 0.4, "every": 0}


def test_a_number_of_steps_between_two_uses_sets_the_price():
    (found,) = find(NUMBER)
    assert "only used once in 25 steps: from line 10 on" in found.message
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == pytest.approx([1_232_000] * 2, abs=1)


@pytest.mark.parametrize(("remark", "count"), [(OPEN, 0), (NUMBER, 1)])
def test_if_the_marked_step_used_it_only_a_number_tells_how_often(remark, count):
    assert len(find(remark, ran=(0, 1))) == count


def test_what_did_not_run_in_the_marked_step_is_not_of_each_step():
    assert find(ran=(2,)) == []


@pytest.mark.parametrize(("share", "count"), [(2, 1), (0, 0)])
def test_boundary_of_what_it_takes(share, count):
    assert len(find(share=share)) == count


@pytest.mark.parametrize(("share", "updates", "count"), [(89, 0, 1), (90, 0, 0), (90, 1, 1)])
def test_a_benchmark_whose_step_is_that_line_is_none(share, updates, count):
    """It updates nothing, and what it times is what it is for."""
    update = annotation("Optimizer.step#SGD.step", 2010, 20)
    assert len(find(share=share, events=[update] * updates)) == count


def test_with_a_device_there_is_no_price():
    launched = [runtime("cudaLaunchKernel", 10, 5, correlation=1), kernel("gemm", 20, 40, correlation=1)]
    (found,) = find(events=launched)
    assert (found.edit, found.severity) == (None, Severity.LOW)


def test_missing_data():
    assert find(remarks=()) == []
    with pytest.raises(CannotLook):
        find(torch=None)


def test_without_samples_the_recorded_steps_tell():
    """The mark takes 50 µs of the 2 ms."""
    (found,) = find(share=None)
    assert found.evidence["share"] == pytest.approx(0.025, abs=1e-3)
    assert found.edit is not None
    assert found.edit.uncertainty > 0.4
