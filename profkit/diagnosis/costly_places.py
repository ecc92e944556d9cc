"""The places of the program that take most of the step, as a diagnosis tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.derive.facts import Facts
from profkit.diagnosis.health.device import describe_unrecorded
from profkit.findings.values import Activity, CostlyPlace, Doing, Location
from profkit.patterns.kernel_names import short_kernel_name
from profkit.patterns.places.events import call_site
from profkit.patterns.places.frames import parse_frame
from profkit.patterns.time.sampled_places import SampledPlace, sampled_places
from profkit.run.directory import CallSite
from profkit.savings.costliest import LEAST_SHARE, MOST, PlaceCost, costliest_places

_BY_SAMPLES = "no line was marked there, only samples of the program's stacks tell it"


def tell_costliest(facts: Facts) -> tuple[CostlyPlace, ...]:
    """Where the time is if no rule knows a fault. Of a recording whose device was not recorded, nobody knows; and what
    only the program's beginning does is no part of a step. Samples place what has no line."""
    if facts.is_beginning or describe_unrecorded(facts) is not None:
        return ()
    places = [_place_of(facts, one) for one in costliest_places(facts)]
    unplaced, sampled = [one for one in places if one.location is None], sampled_places(facts)
    if not unplaced or not sampled:
        return tuple(places)
    found = [one for one in places if one.location is not None]
    known = {(one.location.file, one.location.line): number for number, one in enumerate(found) if one.location}
    for one in sampled:
        place = _sampled_place(one, unplaced)
        at = known.get((one.site.file, one.site.line))
        if at is not None:
            found[at] = _together(found[at], place)
        elif one.share >= LEAST_SHARE:
            found.append(place)
    return tuple(sorted(found, key=lambda one: -one.fraction)[: max(MOST, len(places))])


def _sampled_place(sampled: SampledPlace, unplaced: Sequence[CostlyPlace]) -> CostlyPlace:
    """A line that samples know. What it does is what all that has no line does, in its share of that."""
    part = min(sampled.share / sum(one.fraction for one in unplaced), 1.0)
    share = round(sampled.share, 4)
    return CostlyPlace(
        fraction=share,
        bound=share,
        location=Location.of(sampled.site),
        does=_sum_up([replace(doing, fraction=doing.fraction * part) for one in unplaced for doing in one.does]),
        is_explained=all(one.is_explained for one in unplaced),
        unjudged=_BY_SAMPLES,
    )


def _together(place: CostlyPlace, more: CostlyPlace) -> CostlyPlace:
    """The same line, of which the recording knows only a part."""
    fraction, bound = place.fraction + more.fraction, place.bound + more.bound
    return replace(
        place,
        fraction=round(min(fraction, 1.0), 4),
        bound=round(min(bound, 1.0), 4),
        does=_sum_up([*place.does, *more.does]),
        is_explained=place.is_explained and more.is_explained,
    )


def _sum_up(parts: Sequence[Doing]) -> tuple[Doing, ...]:
    """One for each activity, named as the largest of its parts; the most first."""
    of: dict[Activity, Doing] = {}
    for one in sorted(parts, key=lambda one: -one.fraction):
        first = of.get(one.activity)
        of[one.activity] = one if first is None else replace(first, fraction=first.fraction + one.fraction)
    summed = [replace(one, fraction=round(one.fraction, 4)) for one in of.values()]
    return tuple(sorted(summed, key=lambda one: -one.fraction))


def _place_of(facts: Facts, cost: PlaceCost) -> CostlyPlace:
    site, name = call_site(facts, cost.site), facts.trace.names[cost.code] if cost.code >= 0 else ""
    frame = parse_frame(name)
    location = Location.of(site) if site else Location.in_function(CallSite(*frame)) if frame else None
    return CostlyPlace(
        fraction=round(cost.fraction, 4),
        bound=round(cost.bound, 4),
        location=location,
        name="" if location else short_kernel_name(name),
        does=tuple(
            replace(
                one,
                fraction=round(one.fraction, 4),
                name=short_kernel_name(one.name),
                of_peak=None if one.of_peak is None else round(one.of_peak, 4),
            )
            for one in cost.does
        ),
        is_explained=cost.is_explained,
        unjudged=cost.unjudged,
    )
