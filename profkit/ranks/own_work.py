"""How long each rank worked in each step, waits for others taken out, and on what."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from profkit.ranks.launch import Launch
from profkit.ranks.pipelines import stage_kinds
from profkit.ranks.table import Cause, RankTable
from profkit.run import CallSite
from profkit.trace.events import NONE, Bools, Int64s

Floats = NDArray[np.float64]
Place = tuple[int, str, int]
"""A cause, and the file and the line; no file and `NONE` where the line is not known."""


class OwnWork(Struct, frozen=True):
    """Of the steps that all ranks recorded, in order.

    ``total_ns`` is by rank and step. ``place_ns`` is by rank, step and place, ``places`` say which those are; one of
    them may be `Cause.CONTENTION`, when a rank was ready to work and had no CPU, which the total leaves out. ``kind``
    is the same for ranks that take part in the same collectives of a step, and so do the same work.
    """

    steps: Int64s
    total_ns: Floats
    places: tuple[Place, ...]
    place_ns: Floats
    kind: Int64s


def measure_own_work(launch: Launch) -> OwnWork:
    """Add up what each rank worked, by step and place."""
    steps = _common_steps(launch)
    places: dict[Place, int] = {}
    codes = [_places_of(table, places) for table in launch.tables]
    place_ns = np.zeros((len(launch.tables), len(steps), max(len(places), 1)))
    for number, (table, code) in enumerate(zip(launch.tables, codes, strict=True)):
        at, known = step_index(steps, table.work.step)
        np.add.at(place_ns[number], (at[known], code[known]), table.work.time_ns[known])
    own = [code for place, code in places.items() if place[0] != Cause.CONTENTION]
    return OwnWork(steps, place_ns[:, :, own].sum(axis=2), tuple(places), place_ns, _kinds(launch))


def step_index(steps: Int64s, number: Int64s) -> tuple[Int64s, Bools]:
    """Where these step numbers are among the steps, and which of them are."""
    if not len(steps):
        return np.zeros(len(number), dtype=np.int64), np.zeros(len(number), dtype=bool)
    at = np.searchsorted(steps, number).clip(max=len(steps) - 1)
    return at, steps[at] == number


def place_site(launch: Launch, place: Place) -> CallSite | None:
    """The line of a place, as the first rank tells it that knows it."""
    known = (site for table in launch.tables for site in table.sites)
    return next((site for site in known if (site.file, site.line) == place[1:]), None)


def place_codes(table: RankTable, places: tuple[Place, ...]) -> Int64s:
    """For each row of a rank's work the place among these."""
    return _places_of(table, {place: code for code, place in enumerate(places)})


def _places_of(table: RankTable, places: dict[Place, int]) -> Int64s:
    """The same, with a new code for each place that is not among them."""
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


def _kinds(launch: Launch) -> Int64s:
    """By rank: which operations it takes part in, how often, and with how many others, and the stage of a pipeline."""
    texts: dict[object, int] = {}
    found = []
    for table, stage in zip(launch.tables, stage_kinds(launch), strict=True):
        taken = table.collectives
        pairs, counts = np.unique(np.stack([taken.operation, taken.group]), axis=1, return_counts=True)
        named = sorted(
            (table.texts[operation] if 0 <= operation < len(table.texts) else "",
             table.groups[group].size if 0 <= group < len(table.groups) else NONE,
             round(count / max(len(table.steps.number), 1)))
            for (operation, group), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        )  # fmt: skip
        found.append(texts.setdefault((stage, *named), len(texts)))
    return np.array(found, dtype=np.int64)
