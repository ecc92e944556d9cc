"""If one rank of a launch is damaged, the figures of the others stay the same or become those without the rank. Then a
note names its file and the cause."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profkit.derive.launch.late import find_late
from profkit.derive.launch.lateness import find_reasons
from profkit.diagnosis.launch.launching import gather
from profkit.diagnosis.launch.schedule import Done, do_at
from profkit.diagnosis.launch.summary import summarise
from profkit.findings.values import LaunchSummary
from profkit.savings.launch.uneven_inputs import uneven_inputs
from tests.derive.launch.launches import facts_of_launch
from tests.diagnosis.launch.hostile_ranks import DAMAGES, RANKS, STEPS, Json, gloo, nccl, packed

Make = Callable[[int], Json]
CASES = [(gloo, 3), (nccl, 0), (nccl, 1)]
"""Including the first rank, whose clock all others are set to, and the late one."""
NOTED = {(gloo, "ended after four steps"), (nccl, "ended after four steps"), (gloo, "steps numbered one too high")}
"""Nothing in these recordings contradicts the others. Fewer steps are compared, and a note says so. Gloo's traces have
no other numbers than those of steps."""
launches = pytest.mark.parametrize(("make", "rank"), CASES, ids=[f"{make.__name__}-{rank}" for make, rank in CASES])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all variants of the traces, so that unchanged traces are read only once."""
    return tmp_path_factory.mktemp("launch")


_done: dict[tuple[str, bytes], Done[Any]] = {}


def _read(work: Callable[[str], Any], places: Sequence[str]) -> Iterator[Done[Any]]:
    for number, place in enumerate(places):
        key = place, Path(place).read_bytes()
        if key not in _done:
            _done[key] = do_at(work, number, place)
        yield Done(number, _done[key].value, _done[key].cause)


def _summary(paths: Sequence[Path]) -> LaunchSummary:
    found = gather([str(path) for path in paths], _read)
    own = uneven_inputs(facts_of_launch(found.launch)).own
    late = find_late(own)
    return summarise(found.launch, found.costs, own.staging, find_reasons(found.launch, found.costs, own, late), late)


@cache
def _write(folder: Path, make: Make) -> tuple[Path, ...]:
    """The undamaged launch."""
    paths = tuple(folder / make.__name__ / f"rank{rank}.json.gz" for rank in range(RANKS))
    paths[0].parent.mkdir()
    for rank, path in enumerate(paths):
        path.write_bytes(packed(make(rank)))
    return paths


@cache
def _around(folder: Path, make: Make, rank: int) -> tuple[LaunchSummary, LaunchSummary]:
    """The summaries of the undamaged launch, and of the one without the rank."""
    paths = _write(folder, make)
    return _summary(paths), _summary([path for at, path in enumerate(paths) if at != rank])


def _damaged(folder: Path, make: Make, rank: int, damage: str) -> LaunchSummary:
    paths = _write(folder, make)
    path = paths[rank]
    whole = path.read_bytes()
    try:
        path.write_bytes(packed(DAMAGES[damage](copy.deepcopy(make(rank)))))
        return _summary(paths)
    finally:
        path.write_bytes(whole)


def _figures_of_others(launch: LaunchSummary, rank: int) -> object:
    """How long the others wait for whom and why, how long their steps take, and what communication costs. Figures
    relative to other ranks, such as to the median work or the first clock, are left out."""
    details = [
        (one.rank, one.details and replace(one.details, own=(), clock_behind_ns=None))
        for one in launch.ranks
        if one.rank != rank
    ]
    ranks = [replace(one, details=None) for one in launch.ranks if one.rank != rank]
    return ranks, details, launch.steps, launch.step_time_ns, launch.groups


@pytest.mark.parametrize(
    ("make", "rank", "damage"),
    [
        pytest.param(make, rank, damage, id=f"{make.__name__}-{rank}-{damage}")
        for make, rank in CASES
        for damage in DAMAGES
        if (make, damage) not in NOTED
    ],
)
def test_the_figures_of_the_other_ranks_stay_or_are_those_without_the_damaged_one(
    folder: Path, make: Make, rank: int, damage: str
):
    whole, without = (_figures_of_others(one, rank) for one in _around(folder, make, rank))
    found = _damaged(folder, make, rank, damage)
    figures = _figures_of_others(found, rank)
    notes_on_it = [note for note in found.notes if f"rank{rank}.json.gz: " in note]
    assert figures == whole or (figures == without and notes_on_it)
    assert not any("failed inside" in note for note in found.notes)


@pytest.mark.parametrize(
    ("make", "rank", "damage"),
    [
        pytest.param(make, rank, damage, id=f"{make.__name__}-{rank}-{damage}")
        for make, rank in CASES
        for damage in DAMAGES
        if (make, damage) in NOTED
    ],
)
def test_a_rank_that_lacks_some_steps_gets_a_note_and_the_late_rank_is_still_found(
    folder: Path, make: Make, rank: int, damage: str
):
    found = _damaged(folder, make, rank, damage)
    late = next(one for one in found.ranks if one.rank == 1)
    assert (late.is_by_chance, late.late_steps >= STEPS - 2, late.cause) == (False, True, "compute")
    assert any(f"rank{rank}.json.gz: not all of the {STEPS} steps" in note for note in found.notes)


@launches
def test_the_undamaged_launch_has_a_late_rank_and_no_notes(folder: Path, make: Make, rank: int):
    whole, without = _around(folder, make, rank)
    assert whole.notes == ()
    assert without.notes == (f"rank {rank} of {RANKS} is missing; what it did is unknown",)
    assert [one.is_by_chance for one in whole.ranks] == [True, False, True, True]
    assert _figures_of_others(whole, rank) != _figures_of_others(without, rank)
