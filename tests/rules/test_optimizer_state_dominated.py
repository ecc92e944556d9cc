"""Peaks that an optimizer's state makes, and others."""

from __future__ import annotations

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.optimizer_state_dominated import optimizer_state_dominated
from tests.snapshots import MIB, Recording, at, facts_of_snapshot, in_model, in_step, moving
from tests.traces import facts_of, op

BASE = 1 << 40


def find(recording: Recording) -> list[Suspicion]:
    return list(optimizer_state_dominated.check(facts_of_snapshot(recording)))


def adam(parameters: int = 100, state: int = 200, activations: int = 60) -> Recording:
    """In MiB: parameters, then the state of a first step, and a forward pass that makes the peak."""
    recording = Recording()
    recording.segment(BASE, 4096 * MIB, moving())
    recording.alloc(BASE, parameters * MIB, moving())
    recording.alloc(BASE + 1000 * MIB, state * MIB, in_step())
    recording.alloc(BASE + 2000 * MIB, activations * MIB, in_model(31))
    recording.free(BASE + 2000 * MIB, in_model(32))
    return recording


def test_two_moments_are_most_of_the_peak():
    (found,) = find(adam())
    assert found.location is not None
    assert found.location.line == 12
    assert found.size_bytes == 150 * MIB
    assert found.peak_fraction == pytest.approx(150 / 360)
    assert "56 % of the peak of 377 MB is the optimizer's state: 210 MB, 2.0 times the parameters" in found.message
    assert optimizer_state_dominated.kind is Kind.OPPORTUNITY


def test_state_from_before_the_history_counts_where_a_step_gives_it_back():
    recording = Recording()
    recording.segment(BASE, 4096 * MIB, is_older=True)
    recording.alloc(BASE, 100 * MIB, is_older=True)
    recording.alloc(BASE + 1000 * MIB, 200 * MIB, is_older=True)
    recording.free(BASE + 1000 * MIB, in_step())
    (found,) = find(recording)
    assert found.evidence["state_bytes"] == 200 * MIB


@pytest.mark.parametrize(
    ("parameters", "state", "activations"),
    [(100, 200, 101), (40, 100, 20)],
    ids=["less than half", "a small peak"],
)
def test_other_peaks_are_silent(parameters, state, activations):
    assert find(adam(parameters, state, activations)) == []


def test_half_of_the_peak_is_enough():
    assert len(find(adam(100, 200, 100))) == 1


def test_what_a_step_itself_frees_is_no_state():
    recording = Recording()
    recording.segment(BASE, 4096 * MIB, moving())
    recording.alloc(BASE, 100 * MIB, moving())
    recording.alloc(BASE + 1000 * MIB, 200 * MIB, in_step())
    recording.free(BASE + 1000 * MIB, in_step())
    recording.alloc(BASE + 3000 * MIB, 4 * MIB, at(3))
    assert find(recording) == []


def test_an_empty_snapshot_has_nothing_to_find():
    assert find(Recording()) == []


def test_without_a_snapshot_the_rule_does_not_look():
    assert missing_needs(facts_of([op("aten::mm", 1, 9)]), optimizer_state_dominated.needs) == [Need.SNAPSHOT]
