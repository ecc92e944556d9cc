"""Launches of eight GPUs in the forms of published traces, some with a rank that works 20 ms longer in each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import profkit
from profkit.findings.values import Diagnosis, LaunchSummary
from profkit.report.ranks_wording import late_ranks
from tests.diagnosis.launch.public_traces import (
    CUSTOM,
    FORMS,
    LATE,
    LATE_US,
    RANKS,
    STEPS,
    Form,
    lockstep,
    tensor_parallel,
    training,
    write_launch,
)

LATE_NS = 1_000 * LATE_US
DOUBT = "the recordings do not say which process group some collectives (all_reduce) belong to: "
INFERENCE = Form(
    CUSTOM,
    "nothing",
    numbered=False,
    ranges=False,
    lists=False,
    graphs=True,
    file="rank{rank}.{ts}.pt.trace.json.gz",
    steps=lambda rank, number: None,
)


def launch_of(diagnosis: Diagnosis) -> LaunchSummary:
    assert diagnosis.launch is not None
    return diagnosis.launch


def rules_of(diagnosis: Diagnosis) -> set[str]:
    return {one.rule for one in diagnosis.findings}


@pytest.mark.parametrize("name", FORMS)
def test_the_late_rank_is_named_in_traces_of_every_year(tmp_path: Path, name: str) -> None:
    diagnosis = profkit.diagnose(write_launch(tmp_path / "job", training(LATE_US), FORMS[name]))
    launch = launch_of(diagnosis)
    (late,) = late_ranks(launch)
    assert (late.rank, late.late_steps, late.kept_waiting, late.cause) == (LATE, STEPS, RANKS - 1, "compute")
    assert late.late_ns == pytest.approx(LATE_NS, rel=0.05)
    assert late.caused_ns == pytest.approx(LATE_NS, rel=0.05)
    assert [one.size for one in launch.groups] == [RANKS]
    assert [note.removeprefix(DOUBT) for note in launch.notes] == (
        []
        if FORMS[name].lists or FORMS[name].arguments_on != "nothing"
        else ["taken for those of all ranks, which nothing contradicts"]
    )
    assert "straggler" in rules_of(diagnosis)


@pytest.mark.parametrize("name", ["2021", "2025"])
@pytest.mark.parametrize("acts", [training(), tensor_parallel(), lockstep])
def test_nobody_is_late_if_ranks_vary_by_chance(tmp_path: Path, name: str, acts) -> None:  # type: ignore[no-untyped-def]
    diagnosis = profkit.diagnose(write_launch(tmp_path / "job", acts, FORMS[name]))
    assert late_ranks(launch_of(diagnosis)) == []
    assert "straggler" not in rules_of(diagnosis)


@pytest.mark.parametrize("name", FORMS)
def test_a_rank_that_two_groups_wait_for_is_late_once(tmp_path: Path, name: str) -> None:
    """Its tensor-parallel group waits for the rank, then the other group waits for that group."""
    diagnosis = profkit.diagnose(write_launch(tmp_path / "job", tensor_parallel(LATE_US), FORMS[name]))
    (late,) = late_ranks(launch_of(diagnosis))
    assert late.rank == LATE
    assert late.late_ns == pytest.approx(LATE_NS, rel=0.05)
    straggler = next(one for one in diagnosis.findings if one.rule == "straggler")
    assert straggler.saving is not None
    assert straggler.saving.fraction == pytest.approx(0.18, abs=0.01)


@pytest.mark.parametrize("name", ["2021", "2023", "2025"])
def test_ranks_in_lockstep_wait_as_long_whatever_their_groups(tmp_path: Path, name: str) -> None:
    launch = launch_of(profkit.diagnose(write_launch(tmp_path / "job", lockstep, FORMS[name])))
    assert [one.waited_ns for one in launch.ranks] == pytest.approx([0] * RANKS, abs=3_000)
    assert [one.exposed_ns for one in launch.ranks] == pytest.approx([2_120_000] * RANKS, rel=0.01)
    assert any(DOUBT in note for note in launch.notes) is not (name == "2025")


def test_inference_with_its_own_kernels_is_compared_without_inventing_steps(tmp_path: Path) -> None:
    launch = launch_of(profkit.diagnose(write_launch(tmp_path / "job", training(LATE_US), INFERENCE)))
    (late,) = late_ranks(launch)
    assert (late.rank, late.late_steps, launch.steps) == (LATE, 1, 1)
    assert late.late_ns == pytest.approx(STEPS * LATE_NS, rel=0.05)


def test_with_one_step_the_report_says_that_lateness_may_be_chance(tmp_path: Path) -> None:
    diagnosis = profkit.diagnose(write_launch(tmp_path / "job", training(LATE_US), FORMS["2025"], steps=1))
    (late,) = late_ranks(launch_of(diagnosis))
    assert late.rank == LATE
    assert "straggler" not in rules_of(diagnosis)
    assert diagnosis.verdict is not None
    assert "o known fault in rank 5, and 1 step in common is too few to compare 8 ranks" in diagnosis.verdict.text
    assert "longest for" not in diagnosis.verdict.text


@pytest.mark.parametrize("name", ["2024", "2025"])
def test_ranks_without_step_marks_are_compared_by_repetitions(tmp_path: Path, name: str) -> None:
    form = replace(FORMS[name], steps=lambda rank, number: None)
    launch = launch_of(profkit.diagnose(write_launch(tmp_path / "job", training(LATE_US), form)))
    worst = max(launch.ranks, key=lambda one: one.caused_ns)
    assert worst.rank == LATE
    assert all(10 * one.caused_ns < worst.caused_ns for one in launch.ranks if one is not worst)


@pytest.mark.parametrize("higher", [lambda rank: rank, lambda rank: -3 * (rank == 2), lambda rank: 1_000 * (rank > 3)])
def test_ranks_with_different_step_numbers_are_compared_by_the_numbers_of_collectives(
    tmp_path: Path, higher: Callable[[int], int]
) -> None:
    form = replace(FORMS["2025"], steps=lambda rank, number: 10 + number + higher(rank))
    diagnosis = profkit.diagnose(write_launch(tmp_path / "job", training(LATE_US), form))
    launch = launch_of(diagnosis)
    (late,) = late_ranks(launch)
    assert (late.rank, late.late_steps, late.cause, launch.steps) == (LATE, STEPS, "compute", STEPS)
    assert "straggler" in rules_of(diagnosis)
    assert len(launch.ranks) == RANKS
    assert all("numbers its steps" in note for note in launch.notes)
    assert len(launch.notes) in (1, 4, 7)
