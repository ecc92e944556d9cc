"""Which rank of a launch this process is, and how much it records.

Once the program has a process group, that is the best source; it stores the two numbers, so asking involves no other
process. Before that, the launcher's variables are read.

No clock is read over the network. That would need an answer from rank 0 between its steps, over a connection that would
make the program's own requests wait. Within one host there is only one clock. Between hosts the collectives show the
offset later: none ends on one rank before it has begun on all.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import parent_process
from pathlib import Path

from profkit.collect.ranks.launchers import Place, is_loopback, meeting_point, read_place
from profkit.core.errors import UnreadableInput
from profkit.run.directory import RankIdentity, load_launch
from profkit.run.plan import Plan

_OWN_ENVIRONMENT = Path("/proc/self/environ")
"""The variables that the process was started with, without later changes."""
SPAWNED = "spawn"
_UNNAMED = "group"
"""Starters that set no variables: the program's own processes, and a person who starts each rank by hand."""


class RankWatch:
    """``identity`` is the latest known rank of the process that records into ``directory``; None for a single
    process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place: Place | None = None

    @property
    def identity(self) -> RankIdentity | None:
        place = self._place = find_place() or self._place
        launch = launch_in(self._directory.parent)
        if place is None and not launch:
            return None
        known = place or Place(-1, -1)
        return RankIdentity(
            known.rank,
            known.world_size,
            known.local_rank,
            socket.gethostname(),
            launch,
            clock_offset_ns=0 if _is_with_rank_0(known) else None,
            clock_error_ns=0 if known.rank == 0 else None,
        )


def launch_in(directory: Path) -> str:
    """The launch whose ranks record below ``directory``; empty if unknown."""
    try:
        return load_launch(directory).launch
    except (UnreadableInput, OSError):
        return ""


def _is_with_rank_0(place: Place) -> bool:
    """Whether it shares rank 0's host. A local rank counts the lower ranks on the same host: if it counts all of them,
    rank 0 is among them."""
    return place.is_one_host or place.rank == 0 or (place.rank > 0 and place.rank == place.local_rank)


def find_place() -> Place | None:
    """From the program's process group if it has one, else from the launcher's variables, unless the parent's."""
    launched = read_place(os.environ)
    if launched is not None and parent_process() is not None and not _is_own(launched.variable):
        launched = None
    return _of_group(launched, os.environ) or launched


def _of_group(launched: Place | None, variables: Mapping[str, str]) -> Place | None:
    """The rank in the process group, completed by the launcher's place if that means the same processes."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, size = int(distributed.get_rank()), int(distributed.get_world_size())
    if size < 2:
        return None
    if launched is not None and (launched.rank, launched.world_size) == (rank, size):
        return launched
    if launched is not None:
        return replace(launched, rank=rank, world_size=size, local_rank=-1, local_size=-1, is_one_host=False)
    launcher = _UNNAMED if parent_process() is None else SPAWNED
    return Place(rank, size, launcher=launcher, job=meeting_point(variables), is_one_host=is_loopback(variables))


def _is_own(variable: str) -> bool:
    """Whether the process itself has set the variable since it started."""
    try:
        inherited = _OWN_ENVIRONMENT.read_bytes().split(b"\0")
    except OSError:  # not Linux: unknown
        return False
    return f"{variable}={os.environ[variable]}".encode() not in inherited


def for_rank(plan: Plan) -> Plan:
    """The plan of this process: light unless it is one of the ranks that record everything."""
    place = find_place()
    is_light = place is not None and place.rank not in full_ranks(place.world_size, plan.ranks)
    return replace(plan, is_rank=place is not None, is_light=is_light)


def full_ranks(world_size: int, most: int) -> frozenset[int]:
    """The ranks that record everything: rank 0 and others at even distances, each shifted by one more. Without the
    shift, and with eight GPUs on each host, all would be the first of their hosts. Each rank computes them alone."""
    if most >= world_size:
        return frozenset(range(world_size))
    distance = world_size // max(most, 1)
    return frozenset(number * world_size // most + number % distance for number in range(most))
