"""The environment variables in which launchers tell each process its place among all.

torchrun and, through it, Accelerate: the table "Environment Variables" in the documentation of
``torch.distributed.run``. Ray Train sets the same variables at run time, because ``torch.distributed`` reads them
(``ray/train/torch/config.py``).
Open MPI: docs.open-mpi.org, "Environment variables set for MPI applications"; ``PMIX_NAMESPACE`` is the job's name in
the PMIx standard. MVAPICH, MPICH's Hydra and Intel MPI: the names that Accelerate looks for
(``accelerate/utils/environment.py``). Slurm: ``man srun``, "OUTPUT ENVIRONMENT VARIABLES". Lightning's own launcher
tells a process only its place on its host (``lightning/pytorch/strategies/launchers/subprocess_script.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MOST_DIGITS = 9
"""No launch has a billion ranks, and a longer number would not fit where ranks are stored in 32 bits."""
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True, slots=True)
class Place:
    """A process among the ``world_size`` of its launch, ``local_rank`` among the ``local_size`` of its host; -1 means
    unknown. ``launcher`` is the source, and ``variable`` the variable with the rank. ``job`` is the launcher's name for
    the launch, empty if it has none. ``is_one_host``: all processes are known to run on one host."""

    rank: int
    world_size: int
    local_rank: int = -1
    local_size: int = -1
    launcher: str = ""
    variable: str = ""
    job: tuple[str, ...] = ()
    is_one_host: bool = False


class _Names(NamedTuple):
    """The variables of one launcher. Without the ``needed`` ones the others come from elsewhere or do not count."""

    launcher: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    job: tuple[str, ...]
    needed: tuple[str, ...] = ()


STARTED_BY_FIRST = "lightning"
"""The launcher whose first process starts the others."""
_MASTER = ("MASTER_ADDR", "MASTER_PORT")
_SLURM_STEP = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_LAUNCHERS = (
    # Workers that are restarted after a failure are a new launch.
    _Names(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", *_MASTER),
        ("TORCHELASTIC_RUN_ID",),
    ),
    _Names("env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", (*_SLURM_STEP, *_MASTER)),
    _Names(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", *_SLURM_STEP),
    ),
    _Names(
        "mvapich",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        _SLURM_STEP,
    ),
    # Before Slurm: Hydra starts one Slurm task on each host, and all processes there inherit that task's variables.
    _Names("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", _SLURM_STEP),
    # A batch script has SLURM_PROCID=0 and the SLURM_NTASKS of later job steps, but belongs to none of them.
    _Names(
        "slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "",
        (*_SLURM_STEP, "SLURM_RESTART_COUNT"),
        _SLURM_STEP,
    ),
)
"""In order of precedence: the launcher that starts the processes last knows best."""


def read_place(variables: Mapping[str, str]) -> Place | None:
    """The place given by the environment; None for a single process, or if the values make no sense."""
    found = (_read(names, variables) for names in _LAUNCHERS)
    return next((place for place in found if place is not None), None) or _read_lightning(variables)


def _read(names: _Names, variables: Mapping[str, str]) -> Place | None:
    rank, size = _number(variables, names.rank), _number(variables, names.size)
    if not 0 <= rank < size or size < 2 or any(name not in variables for name in names.needed):
        return None
    local_rank, local_size = _number(variables, names.local_rank), _number(variables, names.local_size)
    return Place(
        rank,
        size,
        local_rank,
        local_size,
        names.launcher,
        names.rank,
        tuple(variables.get(name, "") for name in names.job),
        is_one_host=local_size == size or ("MASTER_ADDR" in names.job and is_loopback(variables)),
    )


def _read_lightning(variables: Mapping[str, str]) -> Place | None:
    """On the first host the rank equals the local rank. On other hosts the number of ranks before is unknown."""
    rank, size = _number(variables, "LOCAL_RANK"), _number(variables, "WORLD_SIZE")
    if not 0 <= rank < size or size < 2 or variables.get("NODE_RANK") != "0" or "RANK" in variables:
        return None
    job, is_one_host = meeting_point(variables), is_loopback(variables)
    return Place(rank, size, rank, -1, STARTED_BY_FIRST, "LOCAL_RANK", job, is_one_host)


def meeting_point(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The address and port where the processes find each other; empty if the environment does not say."""
    return tuple(variables.get(name, "") for name in _MASTER)


def is_loopback(variables: Mapping[str, str]) -> bool:
    """Whether the processes meet at an address that other hosts cannot reach."""
    return variables.get("MASTER_ADDR", "").startswith(_LOOPBACK)


def _number(variables: Mapping[str, str], name: str) -> int:
    """-1 if it is missing or not a number."""
    text = variables.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else -1
