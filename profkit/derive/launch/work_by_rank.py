"""How long each rank worked in each step, without its waits for others, and on what."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.launch.joint_edits import JointEdit, shrink_ranks_work
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import Staging, find_staging, stage_kinds
from profkit.derive.launch.table import Cause, RankTable
from profkit.run.directory import CallSite
from profkit.trace.events import NONE, Bools, Float64s, Int64s

Place = tuple[int, str, int]
"""A cause, a file and a line; no file and `NONE` if the line is unknown."""


class WorkByRank(Struct, frozen=True):
    """The work in the steps that all ranks recorded, in order.

    ``total_ns`` is by rank and step, ``place_ns`` by rank, step and place of ``places``. The total leaves out
    `Cause.CONTENTION`, when a rank was ready to work but had no CPU. Ranks of the same ``kind`` take part in the same
    collectives of a step, at the same place of the ``staging``, so they do the same work.
    """

    steps: Int64s
    total_ns: Float64s
    places: tuple[Place, ...]
    place_ns: Float64s
    kind: Int64s
    staging: Staging = Staging()


def measure_work_by_rank(launch: Launch) -> WorkByRank:
    """Add up the work of each rank by step and place."""
    steps = _common_steps(launch)
    places: dict[Place, int] = {}
    codes = [_places_of(table, places) for table in launch.tables]
    place_ns = np.zeros((len(launch.tables), len(steps), max(len(places), 1)))
    for number, (table, code) in enumerate(zip(launch.tables, codes, strict=True)):
        at, known = step_index(steps, table.work.step)
        np.add.at(place_ns[number], (at[known], code[known]), table.work.time_ns[known])
    own = [code for place, code in places.items() if place[0] != Cause.CONTENTION]
    staging = find_staging(launch)
    kinds = _kinds(launch, stage_kinds(launch, staging))
    return WorkByRank(steps, place_ns[:, :, own].sum(axis=2), tuple(places), place_ns, kinds, staging)


def scale_work(launch: Launch, own: WorkByRank, rank: int, kept: Float64s, uncertainty: float) -> JointEdit:
    """The rank's work takes this share of its time, which has a value for each step and may be above 1."""
    work = launch.tables[rank].work
    at, known = step_index(own.steps, work.step)
    row = np.flatnonzero(known)
    return shrink_ranks_work(rank, row, work.time_ns[row] * kept[at[row]], uncertainty)


def step_index(steps: Int64s, number: Int64s) -> tuple[Int64s, Bools]:
    """The place of each number among the steps, and which of them are there at all."""
    if not len(steps):
        return np.zeros(len(number), dtype=np.int64), np.zeros(len(number), dtype=bool)
    at = np.searchsorted(steps, number).clip(max=len(steps) - 1)
    return at, steps[at] == number


def place_site(launch: Launch, place: Place) -> CallSite | None:
    """The line of a place, from the first rank that knows it."""
    known = (site for table in launch.tables for site in table.sites)
    return next((site for site in known if (site.file, site.line) == place[1:]), None)


def place_codes(table: RankTable, places: tuple[Place, ...]) -> Int64s:
    """For each row of a rank's work, its place among these; other places get codes beyond them."""
    return _places_of(table, {place: code for code, place in enumerate(places)})


def _places_of(table: RankTable, places: dict[Place, int]) -> Int64s:
    """The same, adding a code for each new place."""
    cause, site = table.work.cause, table.work.site
    pairs, inverse = np.unique(np.stack([cause, site]), axis=1, return_inverse=True)
    codes = []
    for one_cause, one_site in pairs.T.tolist():
        line = table.sites[one_site] if 0 <= one_site < len(table.sites) else None
        place = (one_cause, line.file, line.line) if line else (one_cause, "", NONE)
        codes.append(places.setdefault(place, len(places)))
    return np.array(codes, dtype=np.int64)[inverse.ravel()]


def _common_steps(launch: Launch) -> Int64s:
    steps = [table.steps.number for table in launch.tables]
    common = steps[0] if steps else np.zeros(0, dtype=np.int64)
    for numbers in steps[1:]:
        common = np.intersect1d(common, numbers)
    return common


def _kinds(launch: Launch, stages: list[tuple[int, ...]]) -> Int64s:
    """By rank: which operations it takes part in, how often and with how many ranks, and at which stage."""
    texts: dict[object, int] = {}
    found = []
    for table, stage in zip(launch.tables, stages, strict=True):
        taken = table.collectives
        pairs, counts = np.unique(np.stack([taken.operation, taken.group]), axis=1, return_counts=True)
        named = sorted(
            (
                table.texts[operation] if 0 <= operation < len(table.texts) else "",
                table.groups[group].size if 0 <= group < len(table.groups) else NONE,
                round(count / max(len(table.steps.number), 1)),
            )
            for (operation, group), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        )
        found.append(texts.setdefault((stage, *named), len(texts)))
    return np.array(found, dtype=np.int64)
