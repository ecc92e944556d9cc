"""Which ranks record everything, and which their collectives and steps alone."""

from __future__ import annotations

from dataclasses import replace

from profkit.collect.ranks.identity import find_place
from profkit.plan import Plan


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
