"""Rounds that leave memory behind, as a snapshot alone shows them, and what only looks alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.judge import judging_tasks
from profkit.diagnosis.settings import EVERYTHING, Settings
from profkit.rules.base import Suspicion
from profkit.rules.growing_live_tensors import growing_live_tensors
from profkit.rules.retained_graph import retained_graph
from profkit.run.directory import CallSite, LiveHolder, LiveSample
from tests.snapshots import BACKWARD, MIB, Recording, at, facts_of_snapshot, in_model, moving, snapshot_of
from tests.traces import facts_of, op, step

BASE = 1 << 40


def retained(facts: Facts) -> list[Suspicion]:
    assert retained_graph.by_snapshot is not None
    return list(retained_graph.by_snapshot(facts))


def growing(facts: Facts) -> list[Suspicion]:
    assert growing_live_tensors.by_snapshot is not None
    return list(growing_live_tensors.by_snapshot(facts))


def model() -> Recording:
    recording = Recording()
    recording.put(BASE, 16 * MIB, moving())
    return recording


def passes(
    recording: Recording,
    rounds: int,
    kept: int = 2,
    made: int = 3,
    backward: Callable[[int], bool] = lambda _: False,
    sum_line: int | None = 11,
    first: int = 0,
    size: int = 8,
) -> Recording:
    """Each round ``train.py`` makes a batch and calls the model at line 10, of whose ``made`` tensors the last ones are
    given back by the model and ``kept`` stay, as does what line 11 computes of the result. A backward pass frees what
    the model keeps, and the program the rest."""
    for i in range(first, first + rounds):
        place = BASE + 1000 * (i + 1) * MIB
        recording.put(place, 4 * MIB, at(10))
        for j in range(made):
            recording.put(place + 100 * (j + 1) * MIB, size * MIB, in_model(30 + j))
        for j in range(kept, made):
            recording.free(place + 100 * (j + 1) * MIB, in_model(40))
        if sum_line is not None:
            recording.put(place + 900 * MIB, 512, at(sum_line))
        if backward(i):
            for j in range(kept):
                recording.free(place + 100 * (j + 1) * MIB, BACKWARD)
            recording.free(place, at(10))
    return recording


def test_twelve_losses_kept_with_their_graphs():
    facts = facts_of_snapshot(passes(model(), 12))
    (found,) = retained(facts)
    assert found.location is not None
    assert found.location.line == 11, "what allocates last in a round"
    assert [place.line for place in found.also] == [10]
    assert found.grows
    assert found.count == 12
    assert found.size_bytes == 20 * MIB + 512
    assert found.evidence["bytes"] == 12 * (20 * MIB + 512)
    assert "12 rounds keep what the model's calls saved for a backward pass" in found.message
    assert "no backward pass frees it" in found.message
    assert growing(facts) == []


def test_outputs_that_are_kept_without_their_graphs_are_growing_tensors():
    """Of each pass the last tensor stays, and the model gives back the others itself."""
    facts = facts_of_snapshot(passes(model(), 12, kept=1, made=5))
    (found,) = growing(facts)
    assert found.grows
    assert found.size_bytes == 12 * MIB + 512
    assert retained(facts) == []


def test_graphs_that_outlive_their_backward_pass_are_retained_all_the_same():
    """As with `retain_graph=True` and a list: each round has a backward pass, which frees something else."""
    recording = model()
    for i in range(6):
        passes(recording, 1, first=i)
        recording.put(BASE + 800 * MIB, 2 * MIB, BACKWARD)
        recording.free(BASE + 800 * MIB, BACKWARD)
        recording.release(BASE + 800 * MIB)
    (found,) = retained(facts_of_snapshot(recording))
    assert "although a backward pass ran meanwhile" in found.message


@pytest.mark.parametrize("rounds", [3, 4])
def test_three_rounds_are_too_few_to_tell(rounds):
    assert bool(retained(facts_of_snapshot(passes(model(), rounds)))) is (rounds == 4)


def test_steps_that_free_what_they_keep_are_silent():
    facts = facts_of_snapshot(passes(model(), 12, backward=lambda _: True))
    assert (retained(facts), growing(facts)) == ([], [])


def let_go(recording: Recording, least: int = BASE + 1000 * MIB) -> None:
    """The program's own line frees all that the rounds left, as where the function returns that made it."""
    for address in [address for address in recording.held if address >= least]:
        recording.free(address, at(20))


def test_graphs_that_the_program_frees_when_its_function_returns_were_retained_too():
    recording = passes(model(), 8)
    let_go(recording)
    recording.put(BASE + 900 * MIB, 1 * MIB, at(30))
    facts = facts_of_snapshot(recording)
    (found,) = retained(facts)
    assert (found.count, found.size_bytes) == (8, 20 * MIB + 512)
    assert "168 MB until the program lets go of all at once" in found.message
    assert growing(facts) == []


@pytest.mark.parametrize("rounds", [3, 4, 8])
def test_a_round_that_is_no_more_than_begun_does_not_count(rounds):
    """One line does it all, so a turn of its own begins with each sum: after the last pass there is nothing else."""
    facts = facts_of_snapshot(passes(model(), rounds, sum_line=10))
    assert [one.count for one in retained(facts)] == ([rounds] if rounds > 3 else [])


@pytest.mark.parametrize("rounds", [3, 4])
def test_four_rounds_must_lie_before_the_function_returns(rounds):
    recording = passes(model(), rounds)
    let_go(recording)
    assert bool(retained(facts_of_snapshot(recording))) is (rounds == 4)


def test_outputs_that_a_function_collects_and_returns_are_no_growth():
    """As where an evaluation gathers what the model says under `no_grad` and is done with it."""
    recording = passes(model(), 8, kept=1, made=5)
    let_go(recording)
    facts = facts_of_snapshot(recording)
    assert (retained(facts), growing(facts)) == ([], [])


def test_what_is_let_go_of_before_the_model_works_again_is_silent():
    recording = passes(model(), 8)
    let_go(recording)
    passes(recording, 2, first=20)
    let_go(recording)
    assert retained(facts_of_snapshot(recording)) == []


def test_steps_that_free_what_they_keep_are_silent_after_the_last_one_too():
    recording = passes(model(), 8, backward=lambda _: True)
    let_go(recording)
    assert retained(facts_of_snapshot(recording)) == []


def test_who_frees_must_be_known():
    """As with `context="alloc"`: the backward pass may have freed it all."""
    recording = passes(model(), 8)
    for address in [address for address in recording.held if address >= BASE + 1000 * MIB]:
        recording.free(address)
    assert retained(facts_of_snapshot(recording)) == []


def test_a_sequence_that_waits_for_its_backward_pass_is_silent():
    """A cell is called eight times before the one backward pass, as the step before showed; the snapshot comes amid the
    second."""
    recording = passes(model(), 8)
    for i in range(8):
        for j in range(2):
            recording.free(BASE + (1000 * (i + 1) + 100 * (j + 1)) * MIB, BACKWARD)
        recording.free(BASE + 1000 * (i + 1) * MIB, at(10))
        recording.free(BASE + (1000 * (i + 1) + 900) * MIB, at(10))
    passes(recording, 6, first=20)
    facts = facts_of_snapshot(recording)
    assert (retained(facts), growing(facts)) == ([], [])


def test_layers_of_one_pass_are_no_rounds():
    """One call of the model, whose blocks are one line that runs 24 times."""
    recording = model()
    recording.put(BASE + 100 * MIB, 4 * MIB, at(10))
    for i in range(24):
        recording.put(BASE + (1000 + 100 * i) * MIB, 8 * MIB, in_model(30))
        recording.put(BASE + (1050 + 100 * i) * MIB, 8 * MIB, in_model(31))
    facts = facts_of_snapshot(recording)
    assert (retained(facts), growing(facts)) == ([], [])


def test_data_that_are_put_on_the_device_at_first_do_not_grow():
    """Pairs of tensors by turns of two lines, and nothing that computes."""
    recording = model()
    for i in range(20):
        recording.put(BASE + (1000 + 100 * i) * MIB, 8 * MIB, at(5))
        recording.put(BASE + (1050 + 100 * i) * MIB, 8 * MIB, at(6))
    facts = facts_of_snapshot(recording)
    assert (retained(facts), growing(facts)) == ([], [])


def test_what_grew_long_ago_has_its_bound():
    """Eight outputs are kept, then forty steps leave nothing."""
    recording = passes(model(), 8, kept=1, made=5)
    passes(recording, 40, first=10, backward=lambda _: True, sum_line=None)
    facts = facts_of_snapshot(recording)
    assert (retained(facts), growing(facts)) == ([], [])


def test_losses_without_graphs_are_too_small_to_matter():
    recording = passes(model(), 40, backward=lambda _: True)
    facts = facts_of_snapshot(recording)
    assert (retained(facts), growing(facts)) == ([], [])


def test_rounds_of_very_different_sizes_are_no_steady_growth():
    recording = model()
    for i in range(8):
        passes(recording, 1, first=i, size=64 if i == 4 else 8)
    assert retained(facts_of_snapshot(recording)) == []


def test_without_a_history_nothing_can_be_said_of_rounds():
    recording = passes(model(), 12)
    facts = facts_of_snapshot(recording, with_history=False)
    assert (retained(facts), growing(facts)) == ([], [])
    assert retained(facts_of_snapshot(Recording())) == []


def test_a_snapshot_alone_is_enough_to_look():
    outcomes = {task().rule: task() for task in judging_tasks(facts_of_snapshot(passes(model(), 12)), EVERYTHING)}
    assert outcomes["retained-graph"].reason is None
    assert len(outcomes["retained-graph"].judged) == 1
    assert outcomes["growing-live-tensors"].reason is None
    assert outcomes["launch-bound"].reason == "a memory snapshot holds no operators, no steps and no times"


def test_what_the_names_tell_comes_before_what_the_snapshot_tells():
    events = [event for i in range(5) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i + 1, 9))]
    site = CallSite("train.py", 99, "main", "losses.append(loss)")
    live = tuple(LiveSample(n - 1, (LiveHolder("losses", site, n, 7 * n, 4 * n, n),)) for n in range(1, 6))
    trace, snapshot = facts_of(events).trace, snapshot_of(passes(model(), 12))
    both, alone = Facts(trace, live=live, snapshot=snapshot), Facts(trace, snapshot=snapshot)
    for facts, line in ((both, 99), (alone, 11)):
        (outcome,) = (task() for task in judging_tasks(facts, Settings(select=frozenset({"retained-graph"}))))
        assert [one.finding.location and one.finding.location.line for one in outcome.judged] == [line]
