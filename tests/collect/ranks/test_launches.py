"""Where ranks record: each knows by itself, and all agree."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.collect.ranks import identity, launches
from profkit.collect.ranks.identity import RankWatch, for_rank, full_ranks
from profkit.collect.ranks.launchers import Place, read_place
from profkit.collect.ranks.launches import claim_directory, name_launch, settle
from profkit.errors import RunDirectoryError
from profkit.plan import Plan
from profkit.run import RankIdentity, Run, is_run, save

Become = Callable[..., None]


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """This process becomes a rank that srun started, in a job's first step unless told otherwise."""

    def start(rank: int, size: int = 2, step: str = "0") -> None:
        variables = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_LOCALID": str(rank),
                     "SLURM_JOB_ID": "77", "SLURM_STEP_ID": step}  # fmt: skip
        monkeypatch.setattr(os, "environ", variables)

    return start


def test_a_process_alone_claims_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"RANK": "0", "WORLD_SIZE": "1"})
    assert claim_directory(tmp_path / "run", tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_by_default_the_directory_is_named_after_the_launch(tmp_path: Path, become: Become) -> None:
    for rank in (1, 0):
        become(rank)
        assert claim_directory(None, tmp_path / "train") == tmp_path / "train" / "slurm-77.0" / f"rank{rank}"
    written = json.loads((tmp_path / "train" / "slurm-77.0" / "launch.json").read_text())
    assert written == {"launch": "slurm-77.0", "launcher": "slurm", "world_size": 2}


def test_another_launch_gets_the_next_directory(tmp_path: Path, become: Become) -> None:
    wanted = tmp_path / "run"
    become(0, step="0")
    assert claim_directory(wanted, tmp_path) == wanted / "rank0"
    for rank in (1, 0):
        become(rank, step="1")
        assert claim_directory(wanted, tmp_path) == tmp_path / "run-2" / f"rank{rank}"
    become(1, step="0")
    assert claim_directory(wanted, tmp_path) == wanted / "rank1", "a late rank still finds its launch"


def test_a_launch_of_the_same_name_gets_the_next_directory_and_another_name(tmp_path: Path, become: Become) -> None:
    wanted = tmp_path / "run"
    for directory, name in (("run", "slurm-77.0"), ("run-2", "slurm-77.0-2"), ("run-3", "slurm-77.0-3")):
        for rank in (0, 1):
            become(rank)
            assert claim_directory(wanted, tmp_path) == tmp_path / directory / f"rank{rank}"
        assert json.loads((tmp_path / directory / "launch.json").read_text())["launch"] == name


def test_a_directory_with_the_run_of_a_process_alone_is_no_launchs(tmp_path: Path, become: Become) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    become(0)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run-2" / "rank0"


def test_a_rank_that_comes_at_the_same_time_as_another_goes_with_it(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's file appears while this one looks whether the directory is in use."""

    def look(directory: Path) -> bool:
        become(0)
        monkeypatch.setattr(launches, "is_run", is_run)
        assert claim_directory(directory, tmp_path) == directory / "rank0"
        become(1)
        return is_run(directory)

    monkeypatch.setattr(launches, "is_run", look)
    become(1)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run" / "rank1"


def test_what_another_rank_has_not_written_yet_is_waited_for(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    launch = tmp_path / "run" / "launch.json"
    launch.touch()
    monkeypatch.setattr(launches.time, "sleep", lambda _: launch.write_text('{"launch": "slurm-77.0"}'))
    become(1)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run" / "rank1"


def test_a_file_that_names_no_launch_is_not_waited_for_for_ever(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "launch.json").write_text('{"launch": [1]}')
    waits: list[float] = []
    monkeypatch.setattr(launches.time, "sleep", waits.append)
    become(1)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run-2" / "rank1"
    assert sum(waits) == pytest.approx(2)


def test_a_place_that_cannot_hold_a_directory_is_refused(tmp_path: Path, become: Become) -> None:
    (tmp_path / "file").touch()
    become(0)
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        claim_directory(tmp_path / "file" / "run", tmp_path)


def test_ranks_on_one_host_are_told_from_another_launchs_by_who_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Place(0, 2, 0, 2, "torchrun", "RANK", ("same", "0", "node", "29500"), is_one_host=True)
    other = replace(first, rank=1, local_rank=1)
    monkeypatch.setattr(os, "environ", {"RANK": "0"})
    assert name_launch(first) == name_launch(other)
    monkeypatch.setattr(launches, "_describe", lambda process: "another")
    assert name_launch(first) != name_launch(replace(first, is_one_host=False))
    named = name_launch(first)
    monkeypatch.setattr(launches, "_describe", lambda process: "a third")
    assert name_launch(first) != named


@pytest.mark.parametrize(
    "change", [{"job": ("other", "0", "node", "1")}, {"job": ("same", "1", "node", "1")}, {"launcher": "env"}]
)
def test_launches_have_names_of_their_own(change: dict[str, object]) -> None:
    place = Place(3, 16, 3, 8, "torchrun", "RANK", ("same", "0", "node", "1"))
    assert name_launch(replace(place, rank=9)) == name_launch(place)
    assert name_launch(replace(place, **change)) != name_launch(place)  # type: ignore[arg-type]  # by name


def test_the_identity_is_what_the_environment_and_the_directory_say(tmp_path: Path, become: Become) -> None:
    become(1)
    folder = claim_directory(tmp_path / "run", tmp_path)
    assert folder is not None
    found = RankWatch(folder).identity
    assert found is not None
    assert found == RankIdentity(1, 2, 1, found.host, "slurm-77.0", clock_offset_ns=0)


def test_the_clock_of_another_host_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1",
                                        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"})  # fmt: skip
    found = RankWatch(tmp_path / "rank3").identity
    assert found == RankIdentity(3, 4, 1, found.host if found else "", "")


def test_a_folder_of_an_unknown_rank_gets_its_name_when_that_is_known(tmp_path: Path) -> None:
    folder = tmp_path / f"process{os.getpid()}"
    folder.mkdir()
    (tmp_path / "launch.json").write_text('{"launch": "spawn-1"}')
    save(folder, "run.json", Run(identity=RankIdentity(-1)))
    assert settle(folder) == folder
    save(folder, "run.json", Run(identity=RankIdentity(2, 4)))
    assert settle(folder) == tmp_path / "rank2"
    assert (tmp_path / "rank2" / "run.json").exists()


def test_a_folder_whose_name_is_taken_keeps_its_own(tmp_path: Path) -> None:
    folder = tmp_path / f"process{os.getpid()}"
    folder.mkdir()
    (tmp_path / "rank2").mkdir()
    (tmp_path / "launch.json").write_text('{"launch": "spawn-1"}')
    save(folder, "run.json", Run(identity=RankIdentity(2, 4)))
    assert settle(folder) == folder


@pytest.mark.parametrize(
    ("world_size", "most", "expected"),
    [(4, 8, [0, 1, 2, 3]), (8, 8, list(range(8))), (64, 8, [0, 9, 18, 27, 36, 45, 54, 63]), (10, 4, [0, 3, 5, 8]),
     (3, 1, [0]), (4, 0, [])],
)  # fmt: skip
def test_full_ranks_lie_on_different_hosts_and_in_different_places_there(
    world_size: int, most: int, expected: list[int]
) -> None:
    assert sorted(full_ranks(world_size, most)) == expected


@pytest.mark.parametrize("most", [1, 7, 8, 100])
@pytest.mark.parametrize("world_size", [2, 9, 63, 513, 4096])
def test_as_many_ranks_record_everything_as_asked_for(world_size: int, most: int) -> None:
    found = full_ranks(world_size, most)
    assert len(found) == min(most, world_size)
    assert 0 in found
    assert max(found) < world_size


def test_the_plan_of_a_rank_beyond_those_is_light(become: Become) -> None:
    become(1, size=16)
    assert for_rank(Plan()).is_light
    assert not for_rank(Plan(ranks=16)).is_light


def test_ranks_do_not_look_for_cycles_each_for_itself(become: Become, monkeypatch: pytest.MonkeyPatch) -> None:
    become(0)
    assert for_rank(Plan()).is_rank
    monkeypatch.setattr(os, "environ", {})
    assert not for_rank(Plan()).is_rank


RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(("inherited", "is_told"), [(b"A=b\0RANK=1\0", False), (b"A=b\0RANK=0\0", True), (b"", True)])
def test_a_rank_that_a_process_of_the_programs_own_inherits_is_its_parents(
    inherited: bytes, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that it has set itself is its own."""
    (tmp_path / "environ").write_bytes(inherited)
    monkeypatch.setattr(identity, "_OWN_ENVIRONMENT", tmp_path / "environ")
    monkeypatch.setattr(os, "environ", RANK_1)
    assert identity.find_place() is not None
    monkeypatch.setattr(identity, "parent_process", lambda: "a parent")
    assert (identity.find_place() is not None) == is_told


class Group:
    """What is asked of ``torch.distributed``."""

    def __init__(self, rank: int, size: int) -> None:
        self.get_rank, self.get_world_size = (lambda: rank), (lambda: size)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "group", "expected"),
    [
        (RANK_1, Group(1, 2), read_place(RANK_1)),
        ({}, Group(2, 4), Place(2, 4, launcher="group", job=("", ""))),
        (RANK_1, Group(5, 8), Place(5, 8, launcher="env", variable="RANK", job=("", "", "localhost", "29500"))),
        (RANK_1, Group(0, 1), read_place(RANK_1)),
        ({}, Group(0, 1), None),
    ],
)
def test_the_process_group_knows_better_than_the_environment(
    variables: dict[str, str], group: Group, expected: Place | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)  # type: ignore[arg-type]  # a stand-in
    assert identity.find_place() == expected


def test_what_the_process_group_said_is_known_after_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    watch = RankWatch(tmp_path / "run")
    assert watch.identity is None
    with monkeypatch.context() as while_it_lives:
        while_it_lives.setitem(sys.modules, "torch.distributed", Group(2, 4))
        assert (watch.identity or RankIdentity()).rank == 2
    assert (watch.identity or RankIdentity()).rank == 2
