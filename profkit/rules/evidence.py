"""Questions that several rules ask of the facts: which line, how often per step, one group per line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import parse_dims
from profkit.evidence.loops.traffic import Traffic, measure_traffic, tell_elementwise
from profkit.evidence.places import call_site, enclosing_function
from profkit.findings import Location
from profkit.run import CallSite
from profkit.source.remark_kinds import LOADER_MADE
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows
from profkit.trace.values import distinct

Floats = NDArray[np.float64]
_FEW_LOADERS = 3
"""One each for training, validation and test."""


def group_by_site(facts: Facts, rows: Rows, forward: bool = False) -> Iterator[tuple[int, Rows]]:
    """The rows of each calling line (-1: unknown), the most frequent line first.

    With ``forward``, backward operators count to the line of their forward operator.
    """
    sites = (facts.lines.forward_site if forward else facts.lines.site)[rows]
    codes, counts = np.unique(sites, return_counts=True)
    for code in codes[np.argsort(-counts, kind="stable")]:
        yield int(code), rows[sites == code]


def per_step(facts: Facts, rows: Rows) -> float:
    """How many of the rows a measured step holds on average."""
    return len(rows) / max(facts.steps.measured_count, 1)


def share_of_steps(facts: Facts, rows: Rows) -> float:
    """In which share of the measured steps at least one of the rows lies."""
    index = facts.steps.index_of(facts.trace.events.start_ns[rows])
    hit = distinct(index[index >= 0])
    return float(facts.steps.measured[hit].sum() / max(facts.steps.measured_count, 1))


def named_operators(facts: Facts, *names: str) -> Bools:
    """Operators with one of these names."""
    mask: Bools = facts.trace.named(*names) & (facts.trace.events.category == Category.OPERATOR)
    return mask


class LoaderPlaces(Struct, frozen=True):
    """Where a DataLoader is to be changed: the line that makes it, where there is no doubt which does, and the loop
    that asks for batches; else the loop comes first, which the rows of a finding name, and the lines that may make it
    second."""

    location: Location | None
    also: tuple[Location, ...]


_NEARLY_ALL = 0.9
"""Of the time of all requests for batches: the rest is no matter, as of an evaluation that came once."""


def loader_places(facts: Facts, requests: Rows) -> LoaderPlaces:
    """Of the loader that these requests for batches are made to."""
    made = remarked(facts, LOADER_MADE)
    sites = _loader_sites(facts)
    line = None
    if len(sites) == 1:
        (site,) = sites
        line = Location.of(site) if site is not None else made[0] if len(made) == len(facts.run.loaders) == 1 else None
    if line is None:  # among more nobody knows which
        return LoaderPlaces(None, made if len(made) <= _FEW_LOADERS else ())
    loop = locations_of(facts, [busiest_site(facts, requests)]) if requests.size else ()
    return LoaderPlaces(line, tuple(place for place in loop if place != line))  # others make what was not asked


def _loader_sites(facts: Facts) -> set[CallSite | None]:
    """Of the loaders that were asked; of one alone, where that took nearly all of the time."""
    asked_ns: dict[CallSite | None, int] = {}
    for use in facts.run.loaders:
        asked_ns[use.site] = asked_ns.get(use.site, 0) + use.asked_ns
    nearly_all_ns = _NEARLY_ALL * sum(asked_ns.values())
    return {site for site, ns in asked_ns.items() if ns > nearly_all_ns} or set(asked_ns)


def remarked(facts: Facts, kind: str) -> tuple[Location, ...]:
    """The lines of which the program's source says this (see `profkit.run.Remark`)."""
    return tuple(Location.of(remark.site) for remark in facts.run.remarks if remark.kind == kind)


def asked_of_workers(facts: Facts) -> Bools:
    """Requests for batches that worker processes prepare, and whatever else names their iterator."""
    return facts.trace.where_name(lambda name: "MultiProcessing" in name)


def begins_an_iterator(facts: Facts, rows: Rows) -> Bools:
    """Which of all requests for a batch are the first of their iterator: since the one before, somebody drew a seed
    outside a request.

    An iterator draws its workers' seed when it is made, a sampler its own: ``torch.empty(()).random_().item()``.
    """
    events = facts.trace.events
    drawn = named_operators(facts, "aten::random_") & (events.lane == facts.steps.main_lane)
    drawn = facts.tree.outermost(drawn & (facts.tree.nearest_ancestor(named_operators(facts, "aten::randint")) < 0))
    seeds = np.sort(events.start_ns[drawn & ~facts.tree.under(facts.loading)])
    before = np.searchsorted(seeds, events.start_ns[rows])
    return np.diff(before, prepend=0) > 0


PICKS = ("aten::select", "aten::index", "aten::index_select", "aten::slice", "aten::narrow")
"""Operators by which a dataset picks a sample out of a tensor."""
LEAST_PICKS = 64
"""Fewer calls, at some microseconds each, take less than most steps can tell."""
_LEAST_PICKING = 0.25
"""Of the time of a dataset that only picks, operators take half and more; the rest is Python's call of each."""


def picked_one_by_one(facts: Facts, requests: Rows) -> Bools:
    """Which of the requests for a batch, none inside another, pick 64 samples or more out of tensors in memory and do
    little else: operators take a quarter of their time or more, or most samples are read, decoded or made in Python.
    Where shapes are known, the picks are of tensors that hold as many samples, and they get at least half of what
    becomes a tensor out of Python's objects (``lift_fresh``): where a sample is made in Python of what was picked, an
    index or a seed, that is less. (Half, as two tensors may hold one text and what follows each of its words.)
    """
    events, tree = facts.trace.events, facts.tree
    wanted = facts.trace.mask_of(requests)
    request = tree.nearest_ancestor(wanted)
    # What an operator calls itself is no pick of the program's.
    called = np.flatnonzero(tree.outermost(events.category == Category.OPERATOR) & (request >= 0))
    picks, fresh = (called[named_operators(facts, *names)[called]] for names in (PICKS, ("aten::lift_fresh",)))
    picks, held = _picked_of_many(facts, picks)

    def of_request(rows: Rows, weights: Floats | Int64s | None = None) -> Floats:
        return np.bincount(request[rows], weights, len(events))[requests].astype(np.float64)

    # As recorded: of operators this short nobody knows what is left without what recording them took.
    taken_ns = tree.end_ns - events.start_ns
    operating, made = of_request(called, taken_ns[called]), of_request(fresh, _elements(facts, fresh)[1])
    is_much = 2 * of_request(picks, held) >= made
    chosen: Bools = (of_request(picks) >= LEAST_PICKS) & (operating >= _LEAST_PICKING * taken_ns[requests]) & is_much
    return chosen


def _picked_of_many(facts: Facts, picks: Rows) -> tuple[Rows, Floats]:
    """The picks out of tensors that may hold a data set, and how many elements each gets: without bound for a stretch,
    and where no shape is known."""
    first, every = _elements(facts, picks)
    known, stretches = first > 0, named_operators(facts, "aten::slice", "aten::narrow")[picks]
    many = ~known | (first >= LEAST_PICKS)
    held = np.where(known & ~stretches, every / np.maximum(first, 1), np.inf)
    return picks[many], held[many]


def _elements(facts: Facts, rows: Rows) -> tuple[Floats, Floats]:
    """Of the inputs of each event: the length of the first dimension of the first one, and how many elements they have
    together; 0 where no shape is known."""
    codes, kind = np.unique(facts.trace.events.dims_code[rows], return_inverse=True)
    shapes = [parse_dims(facts.trace.text_of(code)) if code >= 0 else [] for code in codes.tolist()]
    first = [float(inputs[0][0]) if inputs and inputs[0] else 0.0 for inputs in shapes]
    every = [float(sum(math.prod(shape) for shape in inputs if shape)) for inputs in shapes]
    return np.array(first)[kind], np.array(every)[kind]


def works_under(facts: Facts, host: Bools) -> Rows:
    """The device work launched by the given host events or anything below them."""
    inside = facts.tree.under(host)
    launches = facts.launches
    owner = np.where(launches.call >= 0, launches.call, launches.operator)
    work: Rows = launches.work[(owner >= 0) & inside[owner.clip(min=0)]]
    return work


def program_operators(facts: Facts) -> Rows:
    """What the program itself called in the measured steps, in time order: the outermost operators of the main
    thread, without the backward pass, an optimizer's step and the DataLoader."""
    return facts.once(_program_operators)


def program_traffic(facts: Facts) -> Traffic:
    """The traffic of `program_operators`."""
    return facts.once(_program_traffic)


def program_elementwise(facts: Facts) -> tuple[Bools, Bools]:
    """Which of `program_operators` work element by element, and which of the others move no data at all."""
    return facts.once(_program_elementwise)


def _program_traffic(facts: Facts) -> Traffic:
    return measure_traffic(facts.trace, program_operators(facts))


def _program_elementwise(facts: Facts) -> tuple[Bools, Bools]:
    return tell_elementwise(facts, program_operators(facts))


def _program_operators(facts: Facts) -> Rows:
    rows = facts.operators.rows
    aside = facts.updates.inside | facts.tree.under(facts.loading) | facts.lines.backward
    chosen: Rows = rows[facts.measured[rows] & ~aside[rows]]
    return chosen


def backward_of(facts: Facts, rows: Rows) -> Rows:
    """The nodes of the backward pass, on any thread, that belong to these forward operators or what runs in them."""
    wanted = facts.trace.mask_of(rows)
    forward = facts.lines.forward
    belongs = (forward >= 0) & facts.tree.under(wanted)[forward]
    return np.flatnonzero(belongs & facts.tree.outermost(facts.lines.backward))


def spent_ns(facts: Facts, rows: Rows) -> Int64s:
    """How long each of the host events took, without what the recording added."""
    return length_ns(facts, facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def length_ns(facts: Facts, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """How long stretches of the host's time are, without what the recording added."""
    length: Int64s = end_ns - start_ns - facts.overhead.covered_within(start_ns, end_ns)
    return length


def busiest_site(facts: Facts, rows: Rows) -> int:
    """The call site at which most of the rows' time was spent, `NONE` where no line is known."""
    sites = facts.lines.site[rows]
    known = sites >= 0
    if not known.any():
        return NONE
    return int(np.bincount(sites[known], weights=spent_ns(facts, rows[known])).argmax())


def group_by_place(facts: Facts, runs: list[Rows], near_lines: int) -> Iterator[list[int]]:
    """Indices of the runs of operators that belong to one place of the program: in one function, with at most
    ``near_lines`` between the lines of one and the next. Without lines: in one function of the user's, where Python
    frames tell, else of the same operators."""
    names = facts.trace.events.name_code
    functions: dict[bytes, CallSite | None] = {}
    placed: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for index, run in enumerate(runs):
        site, operators = call_site(facts, busiest_site(facts, run)), distinct(names[run]).tobytes()
        if site is None and operators not in functions:
            functions[operators] = enclosing_function(facts, run)
        site = site or functions[operators]
        where = (site.file, site.function) if site else ("", operators.hex())
        around = [call_site(facts, int(code)) for code in distinct(facts.lines.site[run])]
        lines = [one.line for one in around if one and (one.file, one.function) == where] or [0]
        placed.setdefault(where, []).append((min(lines), max(lines), index))
    for found in placed.values():
        yield from _split_by_distance(sorted(found), near_lines)


def _split_by_distance(ranges: list[tuple[int, int, int]], near_lines: int) -> Iterator[list[int]]:
    """The third members of ranges of lines, those together that overlap or lie near each other."""
    together: list[int] = []
    reach = 0
    for first, last, index in ranges:
        if together and first > reach + near_lines:
            yield together
            together = []
        reach = max(reach, last) if together else last
        together.append(index)
    if together:
        yield together


def sites_by_time(facts: Facts, rows: Rows) -> list[int]:
    """The rows' call sites, the costliest first; of sites within a quarter of it, the one that runs first leads."""
    site = facts.lines.site[rows]
    known = site >= 0
    if not known.any():
        return []
    cost = np.bincount(site[known], weights=spent_ns(facts, rows[known]))
    order = [int(code) for code in np.argsort(-cost, kind="stable") if code in site]
    leading = next(int(code) for code in site[known] if cost[code] >= 0.75 * cost.max())
    return [leading, *(code for code in order if code != leading)]


def locations_of(facts: Facts, sites: Iterable[int]) -> tuple[Location, ...]:
    """The known lines among these call sites, each once, in the order given."""
    found = (call_site(facts, int(site)) for site in dict.fromkeys(sites))
    return tuple(Location.of(site) for site in found if site is not None)
