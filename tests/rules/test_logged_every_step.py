"""Lines that only write to a log: named with the share that samples give them."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.logged_every_step import logged_every_step
from profkit.rules.unattributed_time import unattributed_time
from profkit.run.directory import CallSite, Remark, Run
from profkit.source import remark_kinds as kinds
from tests.traces import facts_of, kernel, mark, op, runtime, stacks_of, step

LOOP = CallSite("train.py", 8, "main", "log.histogram(name, weight)")
OTHER = CallSite("train.py", 9, "main", "log.scalar('loss', loss)")
WRITES = CallSite("log.py", 3, "Log.histogram", "self.file.write(text)")
COUNTS = CallSite("log.py", 2, "Log.histogram", "counts = np.histogram(values)")
TRAINS = CallSite("train.py", 5, "main", "loss = train(model)")
SITES = (LOOP, OTHER, WRITES, COUNTS, TRAINS)
REMARKS = tuple(Remark(kinds.LOGGED, site, site.line) for site in (LOOP, OTHER, WRITES))


def find(
    shares: dict[tuple[int, ...], int], events: Any = (), ran: tuple[int, ...] = (0, 1, 2), rule: Any = None, **run: Any
) -> list[Suspicion]:
    steps = [event for i in range(3) for event in (step(i, 2000 * i, 2000), op("aten::mm", 2000 * i, 1000))]
    marks = [mark(site, 1100 + 100 * number, 50) for number, site in enumerate(ran)]
    known = {"torch": "2.13", "remarks": REMARKS, **run}
    facts = facts_of([*steps, *marks, *events], run=Run(**known), callsites=SITES, stacks=stacks_of(SITES, shares))
    return list((rule or logged_every_step).check(facts))


def test_the_line_of_the_loop_has_the_price_of_all_below_it():
    (found,) = find({(0, 3): 30, (0, 2): 10, (4,): 60})
    assert found.message == (
        "This line only writes to a log or a file, in each step, and takes 40 % of the host's time with what is "
        "prepared for it."
    )
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == pytest.approx([1_280_000] * 2, abs=1)  # nine tenths of 40 % go
    assert found.location is not None
    assert (found.location.file, found.location.line, found.count) == ("train.py", 8, 1)
    assert found.evidence == {"share": 0.4, "lines": 1}


def test_lines_of_one_function_are_one_finding():
    (found,) = find({(0, 3): 20, (1,): 30})
    assert [place.line for place in found.places.all()] == [9, 8]
    assert "These 2 lines only write" in found.message


@pytest.mark.parametrize(("share", "count"), [(2, 1), (1, 0)])
def test_boundary_of_what_it_takes(share, count):
    assert len(find({(0, 3): share, (4,): 50})) == count


def test_what_did_not_run_in_the_marked_step_may_wait_for_others():
    assert find({(0, 3): 30}, ran=(1,)) == []


def test_what_the_line_s_own_text_explains_is_left_to_unattributed_time():
    """The samples' callee is `copy.deepcopy`, and the line is known to make deep copies."""
    habit = Remark(kinds.DEEP_COPY, LOOP, LOOP.line)
    assert find({(0,): 30, (4,): 60}, remarks=(*REMARKS, habit)) == []


def test_unattributed_time_does_not_name_it_too():
    outside = {(0, 3): 45, (4,): 5}
    assert find(outside, rule=unattributed_time, remarks=())[0].location.line == 2
    lines = [found.location.line for found in find(outside, rule=unattributed_time) if found.location]
    assert 2 not in lines


def test_with_a_device_there_is_no_price():
    launched = [runtime("cudaLaunchKernel", 10, 5, correlation=1), kernel("gemm", 20, 40, correlation=1)]
    (found,) = find({(0, 3): 30}, events=launched)
    assert (found.edit, found.severity) == (None, Severity.LOW)


def test_missing_data():
    assert find({(0, 3): 30}, remarks=()) == []
    with pytest.raises(CannotLook):
        find({(0, 3): 30}, torch=None)
