"""What several ranks did together, in figures for a report: of bounded size for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from profkit.derive.launch.bubbles import even_share, measure_bubble
from profkit.derive.launch.late import Late
from profkit.derive.launch.lateness import Reason, WaitCosts, divide_waits
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import Pipeline, Relay, Staging
from profkit.derive.launch.table import RankTable
from profkit.diagnosis.launch.details import Costs, add_up, detail_ranks
from profkit.diagnosis.pictures.of_ranks import draw_ranks
from profkit.findings.values import (
    LOW_FROM,
    GroupSummary,
    LaunchSummary,
    Location,
    PipelineSummary,
    RankSummary,
    SizeCount,
    StageSummary,
)
from profkit.trace.events import Int64s
from profkit.trace.statistics import distinct

MOST_GROUPS = 256
"""The ones that take longest. A launch of thousands of ranks may have as many groups."""
_SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Upper ends of the size classes. Up to the first, only latency counts; from 16 MiB on, only bandwidth (NCCL's tests
reach a link's at about that size)."""
_MOST_IN_A_NOTE = 8
_MOST_LOOKED_AT = 32
"""Collectives per rank in which the ranks that wait for it are counted. All ranks of a group wait for a late one, so a
few are enough."""


def summarise(
    launch: Launch,
    wait_costs: WaitCosts,
    staging: Staging,
    reasons: Sequence[Reason | None],
    late: Late | None = None,
    shown_rank: int | None = None,
) -> LaunchSummary:
    """Summarise a launch. ``reasons`` has one for each of its tables. ``late`` says which ranks work longer.
    ``shown_rank`` is the one whose own recording is judged."""
    lengths = [_median(table.steps.duration_ns) for table in launch.tables]
    known = [length for length in lengths if length is not None]
    step_ns = int(np.median(known)) if known else None
    late_costs = _without_stages(launch, wait_costs, staging)
    costs = add_up(launch, late_costs)
    waiting = _kept_waiting(launch, late_costs)
    chance = np.zeros(len(launch.tables), dtype=bool) if late is None else ~late.late
    details = detail_ranks(launch, late_costs, costs)
    ranks = tuple(
        replace(
            _rank(table, costs, at, step_ns, waiting[at], reasons[at]),
            is_by_chance=bool(chance[at]),
            details=details.get(at),
        )
        for at, table in enumerate(launch.tables)
    )
    numbers, names = costs.numbers.tolist(), [one.rank for one in ranks]
    caused_ns = add_up(launch, wait_costs).caused_ns
    return LaunchSummary(
        world_size=launch.world_size,
        ranks=ranks,
        steps=len(numbers),
        step_time_ns=step_ns,
        groups=tuple(_groups(launch, wait_costs, max(len(numbers), 1))),
        picture=draw_ranks(names, numbers, caused_ns, costs.waited_ns) if numbers else None,
        shown_rank=shown_rank,
        notes=(*launch.notes, *(_note_on(launch, one) for one in staging.relays)),
        pipelines=tuple(_pipeline(launch, wait_costs, one) for one in staging.pipelines if one.returns),
    )


def _without_stages(launch: Launch, wait_costs: WaitCosts, staging: Staging) -> WaitCosts:
    """The costs without blame for messages between stages, which wait for each other even if none is slow."""
    between = np.zeros(len(launch.joint), dtype=bool)
    for joint in (*(one.joint for one in staging.pipelines), *(one.joint for one in staging.relays)):
        between[joint] = True
    caused_ns, late_ns = (
        np.where(between[launch.parts.joint], 0, cost) for cost in (wait_costs.caused_ns, wait_costs.late_ns)
    )
    return structs.replace(wait_costs, caused_ns=caused_ns, late_ns=late_ns)


def _note_on(launch: Launch, relay: Relay) -> str:
    ranks = [launch.tables[at].identity.rank for at in relay.ranks]
    named = ", ".join(map(str, ranks[:_MOST_IN_A_NOTE])) + (" …" if len(ranks) > _MOST_IN_A_NOTE else "")
    return (
        f"ranks {named} look like a pipeline with several stages a rank or varying micro-batches: its bubble is "
        "unknown, so no rank is called late"
    )


def _pipeline(launch: Launch, wait_costs: WaitCosts, pipeline: Pipeline) -> PipelineSummary:
    bubble = measure_bubble(launch, wait_costs, pipeline)
    ranks = [launch.tables[at].identity.rank for at in pipeline.stages]
    stages = zip(ranks, bubble.worked_ns.tolist(), bubble.idle_ns.tolist(), strict=True)
    return PipelineSummary(
        stages=tuple(StageSummary(rank, int(worked), int(idle)) for rank, worked, idle in stages),
        micro_batches=pipeline.micro_batches,
        idle_fraction=round(bubble.share, 6),
        even_fraction=round(even_share(pipeline), 6),
    )


def _kept_waiting(launch: Launch, wait_costs: WaitCosts) -> list[int]:
    """For each rank, how many others wait for it in the collectives where it costs them most."""
    parts, waiting = launch.parts, np.flatnonzero(wait_costs.waited_ns > 0)
    costly, of_waiting = np.flatnonzero(wait_costs.caused_ns > 0), parts.joint[waiting]
    found = []
    for at in range(len(launch.tables)):
        late = costly[parts.table[costly] == at]
        late = np.sort(late[np.argsort(-wait_costs.caused_ns[late], kind="stable")[:_MOST_LOOKED_AT]])
        first, until = (np.searchsorted(of_waiting, parts.joint[late], side=side) for side in ("left", "right"))
        ranges = [np.arange(*ends) for ends in zip(first, until, strict=True)]
        near = waiting[np.concatenate([np.zeros(0, np.int64), *ranges])]
        found.append(len(distinct(parts.table[divide_waits(launch, wait_costs, near, late)[0]])))
    return found


def _rank(
    table: RankTable, costs: Costs, at: int, step_ns: int | None, kept_waiting: int, reason: Reason | None
) -> RankSummary:
    late = costs.late_ns[at]
    late = late[(costs.caused_ns[at] > 0) & (late >= LOW_FROM * (step_ns or 0))]
    site = reason.site if reason is not None and len(late) else None
    return RankSummary(
        rank=table.identity.rank,
        source=table.source,
        host=table.identity.host,
        device=table.device,
        steps=len(table.steps.number),
        step_time_ns=_median(table.steps.duration_ns),
        late_steps=len(late),
        late_ns=_median(late) or 0,
        kept_waiting=kept_waiting if len(late) else 0,
        caused_ns=costs.mean_ns(costs.caused_ns, at),
        waited_ns=costs.mean_ns(costs.waited_ns, at),
        exposed_ns=costs.mean_ns(costs.exposed_ns, at),
        cause=reason.cause.name.lower() if reason is not None and len(late) else "",
        location=Location.of(site) if site is not None else None,
        notes=table.notes,
    )


def _groups(launch: Launch, wait_costs: WaitCosts, steps: int) -> Iterator[GroupSummary]:
    """The ones that take longest come first."""
    inside = launch.joint.step >= 0
    time_ns = np.bincount(launch.joint.group[inside], wait_costs.transfer_ns[inside], minlength=len(launch.groups))
    for at in np.argsort(-time_ns, kind="stable")[:MOST_GROUPS].tolist():
        own = np.flatnonzero(inside & (launch.joint.group == at))
        if len(own):
            of_own = np.isin(launch.parts.joint, own)
            yield GroupSummary(
                name=launch.groups[at].description or launch.groups[at].name,
                size=launch.groups[at].size,
                recorded=len(np.unique(launch.parts.table[of_own])),
                collectives_per_step=len(own) / steps,
                bytes_per_step=int(launch.joint.size_bytes[own].clip(min=0).sum()) // steps,
                time_ns_per_step=int(time_ns[at]) // steps,
                sizes=tuple(_sizes(launch.joint.size_bytes[own], steps)),
            )


def _sizes(size_bytes: Int64s, steps: int) -> Iterator[SizeCount]:
    """The size classes in use; the last one ends at the largest size."""
    edges = [*_SIZES, max(int(size_bytes.max()), _SIZES[-1] + 1)]
    below = -1
    for edge in edges:
        own = size_bytes[(size_bytes > below) & (size_bytes <= edge)]  # unknown sizes are below all
        below = edge
        if len(own):
            yield SizeCount(edge, len(own) / steps, int(own.sum()) // steps)


def _median(values: Int64s) -> int | None:
    return int(np.median(values)) if len(values) else None
