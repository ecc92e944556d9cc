"""Reading the traces of many ranks on a Ray cluster: one task per trace, on a machine that has the file.

Only tables travel. Ray schedules the tasks, repeats those of a lost machine, and carries the results. It is an extra
(``profkit[ray]``), imported only here.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

from profkit.core.errors import UsageError
from profkit.diagnosis.launch.schedule import Done, do_at
from profkit.trace.limits import memory_limit

_MOST_RETRIES = 5
"""Retries of one task whose machine or process is lost. After that, its trace is probably what kills it."""
_CLIENT = "ray://"
Value = TypeVar("Value")


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster at ``address``: ``HOST:PORT`` of its Ray client, or ``auto`` for the one that this machine
    is part of. Without an address it is the one in ``RAY_ADDRESS``, or a temporary one on this machine alone: Ray does
    not look for a running cluster here, because it waits for minutes if one has crashed.

    Raises `UsageError` if Ray is not installed or not reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster started here reports to nobody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's coming default, without its warning
    ray = _ray()
    if ray.is_initialized():  # by the program that calls profkit
        yield
        return
    if address is None:
        where = None if os.environ.get("RAY_ADDRESS") else "local"
    else:
        where = address if address == "auto" else f"{_CLIENT}{address}"
    try:
        ray.init(address=where, logging_level="ERROR", log_to_driver=False, configure_logging=False)
    except Exception as error:  # each kind of connection has its own errors
        at = f"at {address}" if address else "on this machine"
        raise UsageError(f"--on ray: no cluster was reached {at}: {_first_line(error)}") from error
    try:
        with redirect_stdout(sys.stderr):  # Ray prints messages about lost machines
            yield
    finally:
        ray.shutdown()


def reduce_on_ray(
    work: Callable[[str], Value], places: Sequence[str], holders: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Done[Value]]:
    """Do the work at each place, and yield the results as they come. All machines must have the module of ``work``.
    ``holders`` are the nodes that have a place; a place without holders is within reach of all nodes.

    The work of a lost machine is done again elsewhere. A `ProfkitError` costs its place alone.
    """
    ray = _ray()
    task = ray.remote(num_cpus=1, memory=_memory_of_a_task(ray), max_retries=_MOST_RETRIES)(do_at)
    left = {number: list((holders or {}).get(place, ())) for number, place in enumerate(places)}

    def submit(number: int) -> Any:
        nodes = left[number]
        strategy = _only_on(nodes.pop(0)) if nodes else "SPREAD"
        return task.options(scheduling_strategy=strategy).remote(work, number, places[number])

    running = {submit(number): number for number in range(len(places))}
    while running:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        number = running.pop(ready)
        try:
            done = copy.deepcopy(ray.get(ready))  # Ray's own arrays end with the connection
        except ray.exceptions.RayError as error:
            if left[number]:
                running[submit(number)] = number
                continue
            done = Done(number, cause=f"{places[number]}: {_describe(error)}")
        yield done


def find_holders(find: Callable[[str], Sequence[tuple[str, int, int]]], place: str) -> dict[str, tuple[str, ...]]:
    """The paths that ``find`` sees in ``place`` on the cluster's machines, each with the nodes that have it; no nodes
    if all have it. ``find`` gives path, size and time of change. If size or time differ between two nodes, they are
    different files, and the first is kept.

    Raises `UsageError` if no machine of the cluster has the place.
    """
    ray = _ray()
    nodes = sorted(str(node["NodeID"]) for node in ray.nodes() if node["Alive"])
    task = ray.remote(num_cpus=0, max_retries=1)(do_at)
    asked = [
        (node, task.options(scheduling_strategy=_only_on(node)).remote(find, number, place))
        for number, node in enumerate(nodes)
    ]
    seen: dict[str, tuple[tuple[int, int], list[str]]] = {}
    causes = []
    for number, (node, answer) in enumerate(asked):
        try:
            answered = ray.get(answer)
        except ray.exceptions.RayError as error:
            answered = Done(number, cause=_describe(error))
        causes += [answered.cause] if answered.value is None else []
        for path, size, changed in answered.value or ():
            known, holders = seen.setdefault(path, ((size, changed), []))
            if known == (size, changed):
                holders.append(node)
    if not seen:
        raise UsageError(
            f"--on ray: {place}: no machine of the cluster has a trace there{f' ({causes[0]})' if causes else ''}"
        )
    return {path: () if len(holders) == len(nodes) else tuple(holders) for path, (_, holders) in seen.items()}


def _memory_of_a_task(ray: Any) -> int:
    """The memory to ask for per task: the reader's limit, but at most what the smallest machine has, or the task would
    wait forever."""
    present = [int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]]
    return min([memory_limit(), *(size for size in present if size)])


def _only_on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _describe(error: Exception) -> str:
    name = type(error).__name__
    if name in ("TaskUnschedulableError", "NodeDiedError"):
        return "the machine that has the file is gone"
    if "No module named 'profkit" in str(error):
        return "profkit is not installed on the cluster's machines"
    return f"Ray gave up: {name}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError("--on ray: Ray is not installed: pip install 'profkit[ray]'") from None
    return ray
