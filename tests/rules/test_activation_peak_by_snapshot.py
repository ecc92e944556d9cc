"""Memory peaks that consist mostly of activations, found in a snapshot."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.rules.activation_dominated_peak import activation_dominated_peak
from profkit.rules.base import Suspicion
from tests.snapshots import BACKWARD, MIB, Recording, at, facts_of_snapshot, in_model, moving

BASE = 1 << 40
BLOCK = ("/home/me/model.py", 90, "forward")


def find(facts: Facts) -> list[Suspicion]:
    assert activation_dominated_peak.by_snapshot is not None
    return list(activation_dominated_peak.by_snapshot(facts))


def training(
    blocks: int = 8, parameters: int = 16, hidden: int = 40, output: int = 10, frees: bool = True
) -> Recording:
    """Line 30 of the model calls blocks. Each keeps two tensors: one from line 90, and its output from line 91."""
    recording = Recording()
    recording.put(BASE, parameters * MIB, moving())
    recording.put(BASE + 900 * MIB, MIB, at(9))
    recording.free(BASE + 900 * MIB, at(10))
    for i in range(blocks):
        recording.put(BASE + (1000 + 200 * i) * MIB, hidden * MIB, in_model(30, BLOCK))
        recording.put(BASE + (1100 + 200 * i) * MIB, output * MIB, in_model(30, ("/home/me/model.py", 91, "forward")))
    for i in reversed(range(blocks)):
        stack = BACKWARD if frees else at(20)
        recording.free(BASE + (1100 + 200 * i) * MIB, stack)
        recording.free(BASE + (1000 + 200 * i) * MIB, stack)
    return recording


def test_blocks_called_in_a_loop_are_reported_with_the_bytes_they_keep():
    (found,) = find(facts_of_snapshot(training()))
    assert found.location is not None
    assert (found.location.line, found.location.function) == (30, "forward")
    assert found.count == 8
    assert found.size_bytes == 8 * 50 * MIB - 7 * 10 * MIB - 40 * MIB
    assert found.peak_fraction == pytest.approx(290 / 416)
    assert "96 % of the peak of 436 MB is activations" in found.message


def test_a_library_model_is_reported_at_the_line_that_calls_it():
    """The library calls the blocks. Whether line 10 loops over blocks or calls one model does not show, so it counts as
    one call."""
    library = "/usr/lib/python3/site-packages/transformers/models/gpt2/modeling_gpt2.py"
    recording = Recording()
    recording.put(BASE, 16 * MIB, moving())
    recording.put(BASE + 900 * MIB, MIB, at(9))
    recording.free(BASE + 900 * MIB, at(10))
    for i in range(8):
        for j, line in enumerate((400, 401)):
            stack = [(library, line, "forward"), (library, 900, "forward"), *in_model(0)[1:]]
            recording.put(BASE + (1000 + 200 * i + 100 * j) * MIB, 25 * MIB, stack)
    for i in range(8):
        for j in range(2):
            recording.free(BASE + (1000 + 200 * i + 100 * j) * MIB, BACKWARD)
    (found,) = find(facts_of_snapshot(recording))
    assert found.location is not None
    assert found.location.line == 10
    assert found.count == 1
    assert "what is called here keeps 419 MB" in found.message
    assert "gradient_checkpointing_enable" in found.fix


def test_a_batch_made_on_the_line_that_calls_the_model_hides_nothing():
    """`model(batch()).mean().backward()`: the batch comes once, the model's blocks again and again."""
    recording = Recording()
    recording.put(BASE + 9000 * MIB, MIB, at(9))
    recording.free(BASE + 9000 * MIB, at(9))
    recording.put(BASE, 4 * MIB, at(10))
    for i in range(16):
        library = ("/usr/lib/python3/site-packages/tower.py", 4 + i % 2, "forward")
        recording.put(BASE + 100 * (i + 1) * MIB, 25 * MIB, [library, *in_model(0)[1:]])
    for i in range(17):
        recording.free(BASE + 100 * i * MIB, BACKWARD)
    (found,) = find(facts_of_snapshot(recording))
    assert found.location is not None
    assert found.location.line == 10
    assert "what is called here keeps 419 MB" in found.message


@pytest.mark.parametrize(
    "sizes",
    [{"parameters": 410}, {"hidden": 14, "output": 14}, {"frees": False}, {"blocks": 1, "hidden": 400}],
    ids=["parameters dominate", "a small peak", "no backward pass", "nothing runs twice"],
)
def test_peaks_that_are_small_or_not_made_of_repeated_activations_are_silent(sizes):
    assert find(facts_of_snapshot(training(**sizes))) == []


def test_snapshots_without_a_history_are_silent():
    assert find(facts_of_snapshot(training(), with_history=False)) == []
    assert find(facts_of_snapshot(Recording())) == []
