"""Requests that found no room, and what they say to change first."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import Severity
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.out_of_memory import out_of_memory
from profkit.run.directory import CallSite, DeviceMemorySample, OutOfMemory, Run
from tests.snapshots import (
    BACKWARD,
    MIB,
    Recording,
    at,
    clearing,
    facts_of_snapshot,
    in_model,
    in_step,
    moving,
    snapshot_of,
)
from tests.traces import facts_of, op

BASE = 1 << 40


def find(facts: Facts) -> list[Suspicion]:
    return list(out_of_memory.check(facts))


def training(activations: int = 64, gradients: int = 0, state: int = 0) -> Recording:
    """Parameters of 16 MiB, then what the arguments say, in MiB, after a backward pass."""
    recording = Recording()
    recording.put(BASE, 16 * MIB, moving())
    recording.put(BASE + 800 * MIB, 2 * MIB, in_model(31))
    recording.free(BASE + 800 * MIB, at(10))
    recording.release(BASE + 800 * MIB)
    recording.put(BASE + 900 * MIB, 2 * MIB, in_model(31))
    recording.free(BASE + 900 * MIB, BACKWARD)
    for place, size, stack in ((100, gradients, BACKWARD), (200, state, in_step()), (400, activations, in_model(31))):
        for i in range(size // 16):
            recording.put(BASE + (place + 16 * i) * MIB, 16 * MIB, stack)
    return recording


def test_the_line_that_asks_what_was_held_and_what_to_change():
    recording = training()
    recording.fail(32 * MIB, 5 * MIB, in_model(40))
    (found,) = find(facts_of_snapshot(recording))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("/home/me/model.py", 40)
    assert [place.line for place in found.also] == [10, 31, 3]
    assert found.message.startswith(
        "A request for 33.6 MB failed: 83.9 MB was held, 80 % of it activations, 20 % param"
    )
    assert "The device had 5.24 MB left" in found.message
    assert found.severity is Severity.HIGH
    assert found.size_bytes == 64 * MIB
    assert found.evidence["asked_bytes"] == 32 * MIB
    assert found.evidence["bytes_of_activations"] == 64 * MIB
    lines = found.fix.splitlines()
    assert lines[1].startswith("- up to 67.1 MB: checkpoint the blocks")
    assert lines[2].startswith("- up to 33.6 MB: a batch half as large")
    assert lines[3].startswith("- up to 33.6 MB: `with torch.autocast(")
    assert len(lines) == 4, "nothing else was held that could go"


def test_where_no_backward_pass_is_seen_none_may_be_wanted():
    recording = Recording()
    for i in range(2):
        recording.put(BASE + 100 * i * MIB, 4 * MIB, at(10))
        recording.put(BASE + (100 * i + 10) * MIB, 64 * MIB, in_model(31))
    recording.fail(32 * MIB, 5 * MIB, in_model(31))
    (found,) = find(facts_of_snapshot(recording))
    assert "called in 2 rounds without a backward pass" in found.message
    assert "torch.inference_mode()" in found.fix.splitlines()[1]


def test_gradients_that_are_held_while_the_model_computes_can_be_cleared_before():
    recording = training(gradients=32)
    recording.fail(32 * MIB, 5 * MIB, in_model(40))
    assert "- up to 33.6 MB: clear the gradients" in find(facts_of_snapshot(recording))[0].fix


def test_in_the_optimizer_s_step_the_gradients_are_wanted():
    recording = training(activations=0, gradients=32, state=32)
    recording.fail(32 * MIB, 5 * MIB, in_step())
    fix = find(facts_of_snapshot(recording))[0].fix
    assert "clear the gradients" not in fix
    assert "- up to 25.2 MB: an optimizer with 8-bit state" in fix


def test_what_the_first_change_does_not_give_is_said():
    recording = training(activations=16)
    recording.fail(64 * MIB, 5 * MIB, in_model(40))
    assert "None alone makes enough room" in find(facts_of_snapshot(recording))[0].fix


def test_room_that_the_process_may_not_use_is_said():
    recording = training()
    recording.fail(32 * MIB, 5000 * MIB, in_model(40))
    assert "set_per_process_memory_fraction" in find(facts_of_snapshot(recording))[0].message


def test_an_error_that_the_program_got_over_is_for_information():
    recording = training()
    recording.fail(32 * MIB, 5 * MIB, in_model(40))
    recording.free(BASE + 400 * MIB, at(20))
    recording.put(BASE + 400 * MIB, 8 * MIB, in_model(40))
    recording.fail(64 * MIB, 5 * MIB, in_model(41))
    recording.put(BASE + 410 * MIB, 4 * MIB, in_model(40))
    (found,) = find(facts_of_snapshot(recording))
    assert found.severity is Severity.INFO
    assert found.count == 2
    assert found.message.endswith("The program went on.")


def test_what_is_older_than_the_history_cannot_be_told():
    recording = Recording()
    recording.put(BASE, 512 * MIB, is_older=True)
    recording.fail(64 * MIB, 5 * MIB, at(4))
    (found,) = find(facts_of_snapshot(recording))
    assert "from its start" in found.fix
    assert found.size_bytes == 0


def test_gaps_that_would_hold_the_request_come_first():
    recording = training()
    recording.segment(BASE + 2000 * MIB, 100 * MIB, at(5))
    recording.alloc(BASE + 2000 * MIB, 4 * MIB, at(5))
    recording.fail(90 * MIB, 5 * MIB, in_model(40))
    (found,) = find(facts_of_snapshot(recording))
    assert found.fix.splitlines()[1].startswith("- up to 103 MB: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`")


@pytest.mark.parametrize("elsewhere", [{"pool": (0, 3)}, {"stream": 7}], ids=["a CUDA graph's pool", "another stream"])
def test_gaps_where_the_request_may_not_go_do_not_count(elsewhere):
    recording = training()
    recording.segment(BASE + 2000 * MIB, 100 * MIB, at(5), **elsewhere)
    recording.alloc(BASE + 2000 * MIB, 4 * MIB, at(5))
    recording.fail(90 * MIB, 5 * MIB, in_model(40))
    assert "expandable" not in find(facts_of_snapshot(recording))[0].fix


def test_each_device_fails_for_itself():
    first, second = training(), Recording(device=1)
    second.put(BASE, 32 * MIB, at(6))
    second.fail(64 * MIB, 5 * MIB, at(7))
    (found,) = find(facts_of_snapshot(first, second))
    assert found.location is not None
    assert found.location.line == 7


SITE = CallSite("/home/me/train.py", 31, "main", "loss.backward()")


def run_that_failed(*held_after_steps: int, limit: int = 0, ended: bool = True, **how: bool) -> Facts:
    """64 MiB are held, of which a line is known, when 32 MiB find no room on a device with 900 MiB left."""
    recording = Recording()
    recording.put(BASE, 64 * MIB, in_model(31))
    run = Run(out_of_memory=OutOfMemory(0, 32 * MIB, 900 * MIB, 80 * MIB, SITE, ended=ended))
    sizes = enumerate(held_after_steps, start=2)
    samples = [DeviceMemorySample(i, 0, 1024 * MIB, MIB * one, 0, 0, 0, limit_bytes=limit) for i, one in sizes]
    snapshot = snapshot_of(recording, **{"with_history": False, **how})
    return Facts(facts_of([op("aten::mm", 1, 9)]).trace, run, snapshot=snapshot, device_memory=tuple(samples))


def test_a_run_that_fails_while_no_history_is_kept_is_judged_by_its_notes():
    """profkit keeps one in the located step only."""
    (found,) = find(run_that_failed(60, limit=80 * MIB))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("/home/me/train.py", 31)
    assert found.severity is Severity.HIGH
    assert found.message.startswith("A request for 33.6 MB failed: 67.1 MB was held, 100 % of it activations.")
    assert "The process may use 83.9 MB of the device (set_per_process_memory_fraction)" in found.message
    assert "no backward pass" not in found.message + found.fix, "without a history nobody saw whether one ran"
    assert "let go of what grows" not in found.fix


def test_a_failure_that_the_program_got_over_is_for_information_without_a_history_too():
    (found,) = find(run_that_failed(ended=False))
    assert found.severity is Severity.INFO


def test_with_a_history_that_holds_no_failure_the_snapshot_is_of_another_moment():
    assert find(run_that_failed(with_history=True)) == []


@pytest.mark.parametrize(
    ("after_steps", "grows"),
    [((10, 20, 30, 40), True), ((10, 20, 30), False), ((10, 20, 20, 40), False), ((40, 50, 60, 70), False)],
    ids=["after each step", "too few", "not after each", "less at the failure"],
)
def test_what_grew_after_each_step_is_named_first(after_steps, grows):
    (found,) = find(run_that_failed(*after_steps))
    first = "- up to 56.6 MB: let go of what grows: tensors took 10.5 MB after step 2 and more after"
    assert any(line.startswith(first) for line in found.fix.splitlines()) is grows


def test_memory_that_is_merely_full_is_no_failure():
    recording = training()
    recording.free(BASE + 400 * MIB, clearing())
    assert find(facts_of_snapshot(recording)) == []


def test_without_a_snapshot_the_rule_does_not_look():
    assert missing_needs(facts_of([op("aten::mm", 1, 9)]), out_of_memory.needs) == [Need.SNAPSHOT]
