"""Tables of ranks written by hand: collectives in microseconds, in the order in which they were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.derive.launch.table import Cause, Collectives, Group, RankTable, Steps, Work
from profkit.run.directory import CallSite, RankIdentity

WORLD = Group("0", 2, (0, 1))


@dataclass(frozen=True)
class Did:
    """One collective. The rank's own work stands still for its last ``waited`` µs, or all the time if -1."""

    start: float
    end: float
    step: int = 0
    sequence: int = -1
    size: int = 100
    operation: str = "all_reduce"
    group: int = 0
    waited: float = -1


@dataclass(frozen=True)
class Worked:
    """Own work in a step, by cause and the index of a line."""

    time: float
    step: int = 0
    cause: Cause = Cause.COMPUTE
    site: int = -1


def table(
    rank: int,
    did: Sequence[Did],
    *,
    world: int = 2,
    groups: Sequence[Group] = (WORLD,),
    worked: Sequence[Worked] = (),
    sites: Sequence[CallSite] = (),
    launch: str = "",
    source: str = "",
) -> RankTable:
    """A rank's table. Collectives without a ``sequence`` are counted."""

    def column(values: Sequence[float]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    texts = tuple(dict.fromkeys(one.operation for one in did))
    start, end = (column([1000 * time for time in times]) for times in ([d.start for d in did], [d.end for d in did]))
    waited = column([1000 * (d.end - d.start if d.waited < 0 else d.waited) for d in did])
    numbers = sorted({d.step for d in did if d.step >= 0} | {w.step for w in worked})
    taken = Collectives(
        step=column([d.step for d in did]),
        group=column([d.group for d in did]),
        sequence=column([at if d.sequence < 0 else d.sequence for at, d in enumerate(did)]),
        operation=column([texts.index(d.operation) for d in did]),
        size_bytes=column([d.size for d in did]),
        dtype=column([-1] * len(did)),
        issue_ns=start,
        start_ns=start,
        end_ns=end,
        wait_start_ns=end - waited,
        wait_end_ns=end,
        lane=column([0] * len(did)),
        on_compute=np.zeros(len(did), dtype=bool),
        site=column([-1] * len(did)),
        after_backward=np.zeros(len(did), dtype=bool),
        on_device=np.zeros(len(did), dtype=bool),
    )
    work = Work(
        step=column([w.step for w in worked]),
        start_ns=column([0] * len(worked)),
        end_ns=column([0] * len(worked)),
        cause=column([w.cause for w in worked]),
        site=column([w.site for w in worked]),
        time_ns=column([1000 * w.time for w in worked]),
    )
    starts = column([100_000 * number for number in numbers])
    steps = Steps(column(numbers), starts, starts + 100_000)
    identity = RankIdentity(rank, world, launch=launch)
    return RankTable(identity, source or f"rank{rank}", tuple(groups), texts, tuple(sites), steps, taken, work)
