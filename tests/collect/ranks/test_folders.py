"""Where the ranks of a launch record: each finds its directory by itself, and all agree."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.collect.ranks import folders, identity
from profkit.collect.ranks.folders import claim_directory, name_launch, settle
from profkit.collect.ranks.identity import RankWatch, for_rank, full_ranks
from profkit.collect.ranks.launchers import Place, read_place
from profkit.core.errors import RunDirectoryError
from profkit.run.directory import RankIdentity, Run, is_run, save
from profkit.run.plan import Plan

Become = Callable[..., None]


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """Make this process a rank that srun started, in the first step of a job by default."""

    def start(rank: int, size: int = 2, step: str = "0") -> None:
        variables = {
            "SLURM_PROCID": str(rank),
            "SLURM_STEP_NUM_TASKS": str(size),
            "SLURM_LOCALID": str(rank),
            "SLURM_JOB_ID": "77",
            "SLURM_STEP_ID": step,
        }
        monkeypatch.setattr(os, "environ", variables)

    return start


def test_a_single_process_claims_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_launch_with_the_same_name_gets_the_next_directory_and_a_new_name(tmp_path: Path, become: Become) -> None:
    wanted = tmp_path / "run"
    for directory, name in (("run", "slurm-77.0"), ("run-2", "slurm-77.0-2"), ("run-3", "slurm-77.0-3")):
        for rank in (0, 1):
            become(rank)
            assert claim_directory(wanted, tmp_path) == tmp_path / directory / f"rank{rank}"
        assert json.loads((tmp_path / directory / "launch.json").read_text())["launch"] == name


def test_a_directory_with_the_run_of_a_single_process_is_not_used(tmp_path: Path, become: Become) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    become(0)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run-2" / "rank0"


def test_ranks_that_start_at_the_same_time_share_a_directory(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the other appears while this one checks whether the directory is in use."""

    def look(directory: Path) -> bool:
        become(0)
        monkeypatch.setattr(folders, "is_run", is_run)
        assert claim_directory(directory, tmp_path) == directory / "rank0"
        become(1)
        return is_run(directory)

    monkeypatch.setattr(folders, "is_run", look)
    become(1)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run" / "rank1"


def test_a_rank_waits_for_what_another_is_writing(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    launch = tmp_path / "run" / "launch.json"
    launch.touch()
    monkeypatch.setattr(folders.time, "sleep", lambda _: launch.write_text('{"launch": "slurm-77.0"}'))
    become(1)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run" / "rank1"


def test_the_wait_for_the_name_of_a_launch_is_limited(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "launch.json").write_text('{"launch": [1]}')
    waits: list[float] = []
    monkeypatch.setattr(folders.time, "sleep", waits.append)
    become(1)
    assert claim_directory(tmp_path / "run", tmp_path) == tmp_path / "run-2" / "rank1"
    assert sum(waits) == pytest.approx(2)


def test_a_place_that_cannot_hold_a_directory_is_refused(tmp_path: Path, become: Become) -> None:
    (tmp_path / "file").touch()
    become(0)
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        claim_directory(tmp_path / "file" / "run", tmp_path)


def test_launches_on_one_host_are_told_apart_by_their_parent_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Place(0, 2, 0, 2, "torchrun", "RANK", ("same", "0", "node", "29500"), is_one_host=True)
    other = replace(first, rank=1, local_rank=1)
    monkeypatch.setattr(os, "environ", {"RANK": "0"})
    assert name_launch(first) == name_launch(other)
    monkeypatch.setattr(folders, "_describe", lambda process: "another")
    assert name_launch(first) != name_launch(replace(first, is_one_host=False))
    named = name_launch(first)
    monkeypatch.setattr(folders, "_describe", lambda process: "a third")
    assert name_launch(first) != named


@pytest.mark.parametrize(
    "change", [{"job": ("other", "0", "node", "1")}, {"job": ("same", "1", "node", "1")}, {"launcher": "env"}]
)
def test_each_launch_has_its_own_name(change: dict[str, object]) -> None:
    place = Place(3, 16, 3, 8, "torchrun", "RANK", ("same", "0", "node", "1"))
    assert name_launch(replace(place, rank=9)) == name_launch(place)
    assert name_launch(replace(place, **change)) != name_launch(place)


def test_the_identity_comes_from_the_environment_and_the_directory(tmp_path: Path, become: Become) -> None:
    become(1)
    folder = claim_directory(tmp_path / "run", tmp_path)
    assert folder is not None
    found = RankWatch(folder).identity
    assert found is not None
    assert found == RankIdentity(1, 2, 1, found.host, "slurm-77.0", clock_offset_ns=0)


def test_the_clock_of_another_host_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os,
        "environ",
        {
            "SLURM_PROCID": "3",
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_LOCALID": "1",
            "SLURM_JOB_ID": "77",
            "SLURM_STEP_ID": "0",
        },
    )
    found = RankWatch(tmp_path / "rank3").identity
    assert found == RankIdentity(3, 4, 1, found.host if found else "", "")


def test_the_folder_of_an_unknown_rank_is_renamed_once_the_rank_is_known(tmp_path: Path) -> None:
    folder = tmp_path / f"process{os.getpid()}"
    folder.mkdir()
    (tmp_path / "launch.json").write_text('{"launch": "spawn-1"}')
    save(folder, "run.json", Run(identity=RankIdentity(-1)))
    assert settle(folder) == folder
    save(folder, "run.json", Run(identity=RankIdentity(2, 4)))
    assert settle(folder) == tmp_path / "rank2"
    assert (tmp_path / "rank2" / "run.json").exists()


def test_a_folder_keeps_its_name_if_the_new_one_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / f"process{os.getpid()}"
    folder.mkdir()
    (tmp_path / "rank2").mkdir()
    (tmp_path / "launch.json").write_text('{"launch": "spawn-1"}')
    save(folder, "run.json", Run(identity=RankIdentity(2, 4)))
    assert settle(folder) == folder


@pytest.mark.parametrize(
    ("world_size", "most", "expected"),
    [
        (4, 8, [0, 1, 2, 3]),
        (8, 8, list(range(8))),
        (64, 8, [0, 9, 18, 27, 36, 45, 54, 63]),
        (10, 4, [0, 3, 5, 8]),
        (3, 1, [0]),
        (4, 0, []),
    ],
)
def test_full_ranks_are_spread_over_hosts_and_places_on_them(world_size: int, most: int, expected: list[int]) -> None:
    assert sorted(full_ranks(world_size, most)) == expected


@pytest.mark.parametrize("most", [1, 7, 8, 100])
@pytest.mark.parametrize("world_size", [2, 9, 63, 513, 4096])
def test_as_many_ranks_record_everything_as_requested(world_size: int, most: int) -> None:
    found = full_ranks(world_size, most)
    assert len(found) == min(most, world_size)
    assert 0 in found
    assert max(found) < world_size


def test_the_plan_of_any_other_rank_is_light(become: Become) -> None:
    become(1, size=16)
    assert for_rank(Plan()).is_light
    assert not for_rank(Plan(ranks=16)).is_light


def test_the_plan_of_a_rank_is_marked_as_such(become: Become, monkeypatch: pytest.MonkeyPatch) -> None:
    become(0)
    assert for_rank(Plan()).is_rank
    monkeypatch.setattr(os, "environ", {})
    assert not for_rank(Plan()).is_rank


RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(("inherited", "is_known"), [(b"A=b\0RANK=1\0", False), (b"A=b\0RANK=0\0", True), (b"", True)])
def test_an_inherited_rank_belongs_to_the_parent_process(
    inherited: bytes, is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that the process has set itself is its own."""
    (tmp_path / "environ").write_bytes(inherited)
    monkeypatch.setattr(identity, "_OWN_ENVIRONMENT", tmp_path / "environ")
    monkeypatch.setattr(os, "environ", RANK_1)
    assert identity.find_place() is not None
    monkeypatch.setattr(identity, "parent_process", lambda: "a parent")
    assert (identity.find_place() is not None) == is_known


class Group:
    """Stands in for ``torch.distributed``."""

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
def test_the_process_group_wins_over_the_environment(
    variables: dict[str, str], group: Group, expected: Place | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert identity.find_place() == expected


def test_the_rank_stays_known_after_the_process_group_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    watch = RankWatch(tmp_path / "run")
    assert watch.identity is None
    with monkeypatch.context() as while_it_lives:
        while_it_lives.setitem(sys.modules, "torch.distributed", Group(2, 4))
        assert (watch.identity or RankIdentity()).rank == 2
    assert (watch.identity or RankIdentity()).rank == 2
