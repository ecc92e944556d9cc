"""For the rules on pipelines: which pipelines there are, and at which lines their stages wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from profkit.derive.facts import Facts
from profkit.findings import Location
from profkit.ranks.lateness import weigh_lateness
from profkit.ranks.launch import Launch
from profkit.ranks.pipelines import Pipeline, find_pipelines
from profkit.ruling.places import Places
from profkit.run import CallSite
from profkit.trace.values import among


def pipelines_in_training(facts: Facts) -> list[Pipeline]:
    """The launch's pipelines whose gradients come back."""
    assert facts.launch is not None, "only for rules with Need.RANKS"
    return [one for one in find_pipelines(facts.launch) if one.returns]


def places_of(launch: Launch, pipelines: Sequence[Pipeline]) -> Places:
    """The lines at which the stages wait for each other, the longest wait first."""
    toll, parts, cost_ns = weigh_lateness(launch), launch.parts, Counter[CallSite]()
    for pipeline in pipelines:
        inside = among(parts.joint, pipeline.joint)
        for at in pipeline.stages:
            table = launch.tables[at]
            mine = inside & (parts.table == at)
            sites = table.collectives.site[parts.row[mine]].tolist()
            for site, waited_ns in zip(sites, toll.waited_ns[mine].tolist(), strict=True):
                if site >= 0:
                    cost_ns[table.sites[site]] += waited_ns
    return Places.of(Location.of(place) for place, _ in cost_ns.most_common())
