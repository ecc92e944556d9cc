"""Which rank of a launch this process is, and how much it records.

The program's own process group knows best, once there is one; it is asked for two numbers that it holds, so that no
other process is involved. Before that, the launcher's variables tell.

Nobody's clock is read over the network. That would need an answer from rank 0, between its steps, and a connection that
the program's own requests would have to wait for. Within one host all clocks are one. Between hosts, collectives tell
the offset later: none ends on one rank before it has begun on all.
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
from profkit.errors import UnreadableInput
from profkit.plan import Plan
from profkit.run import RankIdentity, load_launch

_OWN_ENVIRONMENT = Path("/proc/self/environ")
"""The variables that the process was started with, whatever it has set since."""
SPAWNED = "spawn"
_UNNAMED = "group"
"""Launchers that tell nothing: the program's own processes, and a person who starts each with its rank."""


class RankWatch:
    """``identity`` is what is known now of the process that records into ``directory``, and what was known before;
    None for a process alone."""

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
    """The launch whose ranks record below ``directory``; empty if that is not known."""
    try:
        return load_launch(directory).launch
    except (UnreadableInput, OSError):
        return ""


def _is_with_rank_0(place: Place) -> bool:
    """Whether it runs on one host with rank 0. A local rank counts the lower ranks of the same host: if that is all of
    them, rank 0 is one."""
    return place.is_one_host or place.rank == 0 or (place.rank > 0 and place.rank == place.local_rank)


def find_place() -> Place | None:
    """By the program's process group if it has one, else by the launcher's variables, unless these are the parent's."""
    told = read_place(os.environ)
    if told is not None and parent_process() is not None and not _is_own(told.variable):
        told = None
    return _of_group(told, os.environ) or told


def _of_group(told: Place | None, variables: Mapping[str, str]) -> Place | None:
    """What is not asked for here is as the launcher ``told``, if it speaks of the same processes."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, size = int(distributed.get_rank()), int(distributed.get_world_size())
    if size < 2:
        return None
    if told is not None and (told.rank, told.world_size) == (rank, size):
        return told
    if told is not None:
        return replace(told, rank=rank, world_size=size, local_rank=-1, local_size=-1, is_one_host=False)
    launcher = _UNNAMED if parent_process() is None else SPAWNED
    return Place(rank, size, launcher=launcher, job=meeting_point(variables), is_one_host=is_loopback(variables))


def _is_own(variable: str) -> bool:
    """Whether the process itself has set the variable since it started."""
    try:
        inherited = _OWN_ENVIRONMENT.read_bytes().split(b"\0")
    except OSError:  # no Linux: nothing tells
        return False
    return f"{variable}={os.environ[variable]}".encode() not in inherited


def for_rank(plan: Plan) -> Plan:
    """The plan of this process: light if it is none of the ranks that record everything."""
    place = find_place()
    is_light = place is not None and place.rank not in full_ranks(place.world_size, plan.ranks)
    return replace(plan, is_rank=place is not None, is_light=is_light)


def full_ranks(world_size: int, most: int) -> frozenset[int]:
    """Rank 0 and others at even distances, each shifted by one more: with eight GPUs on each host, and no shift, all of
    them would be the first of their hosts. Each rank knows them without asking another."""
    if most >= world_size:
        return frozenset(range(world_size))
    distance = world_size // max(most, 1)
    return frozenset(number * world_size // most + number % distance for number in range(most))
