"""Functions that tests run on a Ray cluster: in a module of their own, as the workers import them by name."""

from __future__ import annotations

import os
from pathlib import Path

import ray

from profkit.core.errors import UnreadableInput


def node() -> str:
    return str(ray.get_runtime_context().get_node_id())


def measure(place: str) -> tuple[str, int]:
    """The place and its length. A place named broken is refused."""
    if place == "broken":
        raise UnreadableInput(place, "is broken")
    return place, len(place)


def meet(place: str) -> str:
    """Say in the pipe ``started``, beside the place, where this runs. Return once somebody opens ``go``."""
    folder = Path(place).parent
    with (folder / "started").open("w") as started:
        started.write(f"{node()} {os.getpid()}\n")
    (folder / "go").open("rb").close()
    return place


def end(place: str) -> str:
    """End the process that this runs in."""
    if place == "fatal":
        os._exit(1)
    return place


def find_everywhere(place: str) -> list[tuple[str, int, int]]:
    return [(f"{place}/shared", 10, 1)]


def find_own(place: str) -> list[tuple[str, int, int]]:
    """A file that all nodes have, one that only each node has, and one that differs between nodes."""
    return [(f"{place}/shared", 10, 1), (f"{place}/{node()}", 10, 1), (f"{place}/differs", int(node()[:8], 16), 1)]


def find_nothing(place: str) -> list[tuple[str, int, int]]:
    raise UnreadableInput(place, "no such directory")
