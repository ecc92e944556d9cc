"""For the rules about pipelines: which pipelines there are, and at which lines their stages wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from profkit.derive.facts import Facts
from profkit.findings import Location
from profkit.ranks.lateness import weigh_lateness
from profkit.ranks.launch import Launch
from profkit.ranks.pipelines import Pipeline, is_in_doubt
from profkit.ruling.places import Places
from profkit.ruling.uneven_inputs import uneven_inputs
from profkit.run import CallSite
from profkit.trace.values import among


def pipelines_in_training(facts: Facts) -> list[Pipeline]:
    """The launch's pipelines whose gradients come back."""
    return [one for one in facts.once(uneven_inputs).own.staging.pipelines if one.returns]


def may_hide_pipelines(facts: Facts) -> bool:
    """Whether no pipeline is seen, but some messages go nobody knows where."""
    launch = facts.launch
    return launch is not None and any(is_in_doubt(launch)) and not pipelines_in_training(facts)


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
