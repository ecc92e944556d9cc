"""The lines that findings name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.launch.table import RankTable
from profkit.findings.values import Location
from profkit.patterns.allocator.lines import site_of
from profkit.patterns.allocator.rounds import KeptRounds
from profkit.patterns.attribution import busiest_site, order_sites, sites_by_time
from profkit.patterns.averaging.gradients import FORWARD
from profkit.patterns.loops.located import sites_of_located_step
from profkit.patterns.places.callers import calling_sites, model_call_sites, model_caller
from profkit.patterns.places.events import call_site
from profkit.patterns.retention.holding import outliving_sites
from profkit.run.directory import CallSite
from profkit.source.remark_kinds import BIASED_LAYER_MADE, LOADER_MADE
from profkit.trace.events import Int64s, Rows
from profkit.trace.statistics import distinct

_FEW_LOADERS = 3
"""One each for training, validation and test."""
_FEW_OUTLIVING = 3
_NEARLY_ALL = 0.9
"""Of the time of all requests for batches. The rest does not matter, such as a single evaluation."""


class Places(Struct, frozen=True):
    """The line of a finding and further lines, the most telling first. Without a ``location``, the finding's rows give
    the line."""

    location: Location | None = None
    also: tuple[Location, ...] = ()

    @classmethod
    def of(cls, lines: Iterable[Location | None]) -> Places:
        """The known lines among these, each once. The first one leads."""
        known = [*dict.fromkeys(line for line in lines if line is not None)]
        return cls(known[0], tuple(known[1:])) if known else cls()

    @classmethod
    def of_sites(cls, sites: Iterable[CallSite | None]) -> Places:
        """The known lines among these call sites, as `of`."""
        return cls.of(Location.of(site) if site else None for site in sites)

    def all(self) -> tuple[Location, ...]:
        """All known lines."""
        return self.also if self.location is None else (self.location, *self.also)


def name_lines(facts: Facts, sites: Iterable[int]) -> Places:
    """The known lines among these call sites, the first of them leading."""
    return Places.of(locations_of(facts, sites))


def costliest_lines(facts: Facts, rows: Rows) -> Places:
    """The lines at which the rows take most of their time."""
    return name_lines(facts, sites_by_time(facts, rows))


def model_places(facts: Facts, rows: Rows, weights: Int64s) -> Places:
    """The line that calls the model to which most of these operators belong, by weight, and their own costliest line.
    In a recording without lines, the function that calls the model."""
    calls = order_sites(model_call_sites(facts, rows), weights)
    own = order_sites(facts.lines.forward_site[rows], weights)
    if calls:
        return name_lines(facts, [calls[0], *own[:1]])
    caller = model_caller(facts, rows)
    return Places(Location.in_function(caller)) if caller else Places()


def locations_of(facts: Facts, sites: Iterable[int]) -> tuple[Location, ...]:
    """The known lines among these call sites, each once, in the order given."""
    return Places.of_sites(call_site(facts, int(site)) for site in dict.fromkeys(sites)).all()


def location_at(facts: Facts, mark: int) -> Location | None:
    """The line that a line's mark is for; None if there is no mark, or its line is not known."""
    site = call_site(facts, int(facts.trace.events.site[mark])) if mark >= 0 else None
    return None if site is None else Location.of(site)


def parallel_pass_line(facts: Facts, rows: Rows) -> Places:
    """The costliest line of these rows. Without one, as if a thread of its own ran the backward pass, the line that
    calls the `DistributedDataParallel` model."""
    forwards = facts.measured_rows(facts.trace.named(FORWARD))
    return Places.of(locations_of(facts, [busiest_site(facts, each) for each in (rows, forwards)])[:1])


def call_lines(tables: Sequence[RankTable], table: Int64s, row: Int64s, cost: Int64s) -> Places:
    """The lines that call collectives, the costliest first. ``table`` and ``row`` say where each collective is."""
    total = Counter[CallSite]()
    for number, one in enumerate(tables):
        mine = table == number
        site = one.collectives.site[row[mine]]
        for code in distinct(site[site >= 0]).tolist():
            total[one.sites[code]] += int(cost[mine][site == code].sum())
    return Places.of_sites(line for line, _ in total.most_common())


def busiest_call_lines(table: RankTable, row: Int64s) -> Places:
    """The lines that call most of these collectives of one rank."""
    return call_lines([table], np.zeros_like(row), row, np.ones_like(row))


def growing_lines(facts: Facts, path: str, *sites: CallSite | None) -> Places:
    """The lines that make names hold more, and those that allocate what outlives its step, the largest first. If the
    line of the first name, ``path``, is unknown, the line of the step that mentions it leads: of several, the one that
    allocates what outlives its step. If that is not certain, none leads."""
    outliving = outliving_lines(facts)
    known = [Location.of(site) for site in sites if site]
    if sites[0]:
        return Places.of([*known, *outliving])
    named = _mentioning(facts, path)
    certain = [line for line in outliving if line in named] or (named if len(named) == 1 else [])
    found = Places.of([*certain[:1], *known, *outliving])
    return found if certain else Places(None, found.all())


def _mentioning(facts: Facts, path: str) -> list[Location]:
    """The lines of the located step whose text has the name at the head of a path such as ``metric.scores``, or what
    follows in ``self.metric.scores``."""
    head = next((name for name in re.findall(r"[^\W\d]\w*", path) if name != "self"), "")
    pattern = re.compile(rf"(?<![\w\"']){re.escape(head)}\b") if head else None
    return [Location.of(site) for site in sites_of_located_step(facts) if pattern and pattern.search(site.source)]


def kept_lines(facts: Facts, rounds: KeptRounds) -> Places:
    """In rounds that leave memory behind: the line that allocates last, and the one that leaves most."""
    return Places.of_sites((site_of(facts, rounds.last), site_of(facts, rounds.largest)))


def outliving_lines(facts: Facts) -> tuple[Location, ...]:
    """The few lines that allocate most of what outlives its step."""
    return locations_of(facts, outliving_sites(facts)[:_FEW_OUTLIVING])


def remarked(facts: Facts, kind: str) -> tuple[Location, ...]:
    """The lines with this remark from reading the program's source (see `profkit.run.directory.Remark`)."""
    return tuple(Location.of(remark.site) for remark in facts.run.remarks if remark.kind == kind)


def layer_makers(facts: Facts, called: Location | None) -> tuple[Location, ...]:
    """The lines that make the layers with a bias that a line calls, as the program's source says."""
    return tuple(
        Location.of(remark.site)
        for remark in facts.run.remarks
        if remark.kind == BIASED_LAYER_MADE
        and called is not None
        and (remark.site.file, remark.used_at) == (called.file, called.line)
    )


def loader_places(facts: Facts, requests: Rows) -> Places:
    """Where to change the loader that serves these requests for batches: the line that makes it, then the loop that
    asks for batches. If it is not certain which line makes it, the requests' loop leads, and the few candidates
    follow."""
    made = remarked(facts, LOADER_MADE)
    sites = _loader_sites(facts)
    line = None
    if len(sites) == 1:
        (site,) = sites
        line = Location.of(site) if site is not None else made[0] if len(made) == len(facts.run.loaders) == 1 else None
    if line is None:
        return Places(None, made if len(made) <= _FEW_LOADERS else ())
    loop = locations_of(facts, [busiest_site(facts, requests)]) if requests.size else ()
    if loop[:1] == (line,):  # a generator makes its loader: the line that asks the generator waits
        loop = locations_of(facts, order_sites(calling_sites(facts, requests))[:1])
    return Places.of([line, *loop])


def _loader_sites(facts: Facts) -> set[CallSite | None]:
    """The lines of the loaders that were asked; a single one if it took nearly all of the time."""
    asked_ns: dict[CallSite | None, int] = {}
    for use in facts.run.loaders:
        asked_ns[use.site] = asked_ns.get(use.site, 0) + use.asked_ns
    nearly_all_ns = _NEARLY_ALL * sum(asked_ns.values())
    return {site for site, ns in asked_ns.items() if ns > nearly_all_ns} or set(asked_ns)
