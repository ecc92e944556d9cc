"""The rank that the environment of each launcher tells, and values that are no rank."""

from __future__ import annotations

import pytest

from profkit.collect.ranks.launchers import Place, read_place

MASTER = {"MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
LOCAL = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
TORCHRUN = {
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_RESTART_COUNT": "0",
    **MASTER,
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-node7-91@1",
}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "8",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
LIGHTNING = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", **LOCAL}

TOLD = {
    "torchrun": (TORCHRUN, Place(9, 16, 1, 8, "torchrun", "RANK", ("job", "0", "node7", "29500"))),
    "torchrun on one host": (
        {**TORCHRUN, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "16"},
        Place(9, 16, 1, 16, "torchrun", "RANK", ("job", "0", "node7", "29500"), is_one_host=True),
    ),
    "set by hand": (
        {"RANK": "1", "WORLD_SIZE": "2", **MASTER},
        Place(1, 2, -1, -1, "env", "RANK", ("", "", "node7", "29500")),
    ),
    "set by hand on one host": (
        {"RANK": "1", "WORLD_SIZE": "2", **LOCAL},
        Place(1, 2, -1, -1, "env", "RANK", ("", "", "localhost", "29500"), is_one_host=True),
    ),
    "Open MPI": (
        OPEN_MPI,
        Place(2, 4, 0, 2, "openmpi", "OMPI_COMM_WORLD_RANK", ("prterun-node7-91@1", "", "")),
    ),
    "Hydra": (HYDRA, Place(1, 4, 1, 4, "mpi", "PMI_RANK", ("", ""), is_one_host=True)),
    "Slurm": (SRUN, Place(5, 8, 1, -1, "slurm", "SLURM_PROCID", ("77", "0", ""))),
    "Hydra inside a step of Slurm's": (
        {**SRUN, **HYDRA},
        Place(1, 4, 1, 4, "mpi", "PMI_RANK", ("77", "0"), is_one_host=True),
    ),
    "torchrun inside a step of Slurm's": (
        {**SRUN, **TORCHRUN},
        Place(9, 16, 1, 8, "torchrun", "RANK", ("job", "0", "node7", "29500")),
    ),
    "Lightning": (
        LIGHTNING,
        Place(1, 2, 1, -1, "lightning", "LOCAL_RANK", ("localhost", "29500"), is_one_host=True),
    ),
    "a wrong rank before a right one": (
        {"RANK": "abc", "WORLD_SIZE": "2", **SRUN},
        Place(5, 8, 1, -1, "slurm", "SLURM_PROCID", ("77", "0", "")),
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_variables_of_a_launcher_tell_the_rank(name: str) -> None:
    variables, place = TOLD[name]
    assert read_place(variables) == place


NOTHING = {
    "no launcher": {},
    "a rank that is no number": {"RANK": "abc", "WORLD_SIZE": "4"},
    "a negative rank": {"RANK": "-1", "WORLD_SIZE": "4"},
    "a rank in other digits": {"RANK": "\u0663", "WORLD_SIZE": "4"},
    "a rank beyond the last": {"RANK": "4", "WORLD_SIZE": "4"},
    "a rank longer than any": {"RANK": "1" * 5000, "WORLD_SIZE": "2" * 5000},
    "one process": {"RANK": "0", "WORLD_SIZE": "1"},
    "a rank without a size": {"RANK": "0"},
    "a size without a rank": {"WORLD_SIZE": "4"},
    "an empty rank": {"RANK": "", "WORLD_SIZE": "4"},
    "the script of a batch job, which is in no step": {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"},
    "a shell in a step of one task": {**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    "Lightning's second host, where the ranks before are not counted": {**LIGHTNING, "NODE_RANK": "1"},
}


@pytest.mark.parametrize("name", NOTHING)
def test_variables_that_make_no_sense_tell_nothing(name: str) -> None:
    assert read_place(NOTHING[name]) is None
