"""What the step before has sent as well, and batches that only look like it."""

from __future__ import annotations

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.host_sync_in_step import host_sync_in_step
from profkit.rules.pageable_transfer import pageable_transfer
from profkit.rules.redundant_recomputation import redundant_recomputation
from profkit.rules.repeated_transfer import repeated_transfer
from profkit.run.directory import CallSite, Recomputation, Run
from profkit.savings.simulate import predict_saving
from tests.rules.transferring import PINNED, Json, computed, sent, stepped
from tests.traces import annotation, facts_of, mark, op, rows_named

MB = 1_000_000
SITES = tuple(CallSite("net.py", line, "Net.forward", f"line {line}") for line in range(8))
TABLE = Recomputation(each_step=(1,))


def find(facts) -> list[Suspicion]:
    return list(repeated_transfer.check(facts))


def sending(direction: str) -> list[Json]:
    """A batch at line 2 and a table at line 5, then a kernel."""
    return [*sent(10, MB, direction), *sent(150, MB, direction, correlation=2), *computed(290, took=60)]


def facts_with(known: Recomputation | None, direction: str = PINNED, *more: list[Json]):
    located = [
        mark(2, 8, 125),
        annotation(f"{CALL_MARK}0", 9, 122),
        *sent(10, MB, direction),
        mark(5, 147, 126),
        annotation(f"{CALL_MARK}1", 149, 122),
        *sent(150, MB, direction, correlation=2),
        mark(6, 285, 20),
        annotation(f"{CALL_MARK}2", 289, 12),
        *computed(290, took=60),
    ]
    events = [*stepped(located, *more, steps=1, length=400), *stepped(sending(direction), *more, first=1, length=400)]
    return facts_of(events, run=Run(recomputation=known), callsites=SITES)


def test_the_call_the_copy_and_the_wait_vanish():
    facts = facts_with(TABLE)
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::to")[3::2]  # the second of each measured step
    assert set(facts.lines.site[found.rows]) == {5}
    assert found.evidence == {"bytes_per_step": MB, "host_ns_per_step": 120_000}
    assert found.message == (
        "1 tensor a step is sent to the device unchanged, as in the step before: "
        "1.00 MB, and 120 µs of the host's time."
    )
    assert predict_saving(facts, found.edit).fraction == pytest.approx(120 / 400, abs=0.01)


def test_a_batch_looks_the_same_and_is_another_tensor():
    assert find(facts_with(Recomputation())) == []


def test_what_is_made_again_on_the_device_is_no_transfer():
    assert find(facts_with(Recomputation(each_step=(2,)))) == []


def test_what_is_sent_twice_in_one_step_is_another_fault():
    assert find(facts_with(Recomputation(again=((1, 0),)))) == []


@pytest.mark.parametrize(("known", "reported"), [((1,), 1), ((0,), 0)])
def test_the_only_recorded_step_tells_which_tensor_was_sent_before(known, reported):
    """The calls are watched into the next step, recorded or not. At line 2 the step begins with a kernel's result."""
    located = [
        *computed(0, took=5, correlation=9),
        mark(5, 47, 126),
        annotation(f"{CALL_MARK}1", 49, 122),
        *sent(50, MB, correlation=2),
        mark(6, 185, 20),
        annotation(f"{CALL_MARK}2", 189, 12),
        *computed(190, took=60),
    ]
    run = Run(recomputation=Recomputation(each_step=known), step_signal="step()")
    facts = facts_of(stepped(located, steps=1, first=4, length=300), run=run, callsites=SITES)
    found = find(facts)
    assert len(found) == reported
    assert [set(facts.lines.site[one.rows]) for one in found] == [{5}] * reported


def test_no_other_rule_claims_the_same_time():
    facts = facts_with(TABLE, "HtoD (Pageable -> Device)")
    assert len(find(facts)) == 1
    (batch,) = pageable_transfer.check(facts)
    assert set(facts.lines.site[batch.rows]) == {2}
    assert list(host_sync_in_step.check(facts)) == []
    assert list(redundant_recomputation.check(facts)) == []


def test_a_recording_that_does_not_tell_tensors_apart_is_not_looked_at():
    with pytest.raises(CannotLook, match="which tensors are sent was not recorded"):
        find(facts_with(None))


def test_a_call_that_hides_behind_the_device_gives_nothing_back():
    busy = computed(0, took=399, delay=0.5, correlation=900, stream=9)
    assert find(facts_with(TABLE, PINNED, busy)) == []


def test_without_a_gpu_the_rule_does_not_look():
    assert Need.DEVICE in missing_needs(facts_of(stepped([op("aten::mm", 10, 20)])), repeated_transfer.needs)
