"""Lines whose results seldom matter: what they make is only logged, or only read under a condition. With the price of
each, by samples of the program's stacks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.loops.located import located_marks, sites_of_located_step
from profkit.patterns.time.advice import advice_on
from profkit.patterns.time.divided import divide_steps
from profkit.patterns.time.line_prices import CallPrice, line_prices, price_of_lines
from profkit.run.directory import CallSite, Remark
from profkit.source import remark_kinds as kinds

_MOSTLY = 0.8
"""Of a line's marks: the rest is its calls from elsewhere."""
_UNCERTAINTY = 0.4
"""Without samples. Marks make the shortest lines look longest, and the gaps are divided by them."""
_LEAST = 0.02
"""Of a step. Less is no reason to write anything less often."""
_WHOLE = 0.9
"""Of a step that updates nothing: what takes so much of it is what is run, as by a benchmark, whoever reads it."""


class SeldomNeeded(Struct, frozen=True):
    """Lines of one function, the costliest first, with their price together. They are needed ``every`` so many steps, 0
    if that is not known, and read from the line ``used_at`` on, 0 if they are only logged."""

    sites: tuple[CallSite, ...]
    price: CallPrice
    every: int = 0
    used_at: int = 0


@derived_once
def seldom_needed(facts: Facts) -> tuple[SeldomNeeded, ...]:
    """What is only logged, and what is only read under a condition that did not hold in the located step."""
    return (*_read_rarely(facts), *_only_logged(facts))


def lines_seldom_needed(facts: Facts) -> frozenset[tuple[str, int]]:
    """Those lines, by file and number."""
    return frozenset((site.file, site.line) for found in seldom_needed(facts) for site in found.sites)


def _read_rarely(facts: Facts) -> Iterable[SeldomNeeded]:
    ran = _ran_in_located_step(facts)
    for remark in facts.run.remarks:
        file = remark.site.file
        if remark.kind != kinds.RARELY_READ or (remark.every < 2 and (file, remark.used_at) in ran):
            continue
        prices = _price(facts, _lines_of(remark))
        if not prices or ran.isdisjoint(_lines_of(remark)):
            continue
        price = _together(prices.values())
        if facts.updates.rows.size or price.share < _WHOLE:
            yield SeldomNeeded((remark.site,), price, remark.every, remark.used_at)


def _only_logged(facts: Facts) -> Iterable[SeldomNeeded]:
    """By function, as a loop over names is a line for each kind of value. What the line's own text explains better is
    left out."""
    remarks = [remark for remark in facts.run.remarks if remark.kind == kinds.LOGGED]
    lines = frozenset(line for remark in remarks for line in _lines_of(remark))
    ran, own = _ran_in_located_step(facts), {price.site: price.callee for price in line_prices(facts)}
    by_function: dict[tuple[str, str], dict[CallSite, CallPrice]] = {}
    for site, price in _price(facts, lines).items():
        explained = advice_on(facts, site.file, site.line, own[site]) if own.get(site) else None
        if (site.file, site.line) in ran and explained is None:
            by_function.setdefault((site.file, site.function), {})[site] = price
    for prices in by_function.values():
        price = _together(prices.values())
        if price.share >= _LEAST:
            yield SeldomNeeded(tuple(sorted(prices, key=lambda site: -prices[site].share)), price)


def _price(facts: Facts, lines: frozenset[tuple[str, int]]) -> dict[CallSite, CallPrice]:
    """What each of the lines takes with all below it, where none of the others calls it: by samples, or else by the
    measured steps, whose gaps the located step divides."""
    return price_of_lines(facts, lines) or _price_as_recorded(facts, lines)


def _price_as_recorded(facts: Facts, lines: frozenset[tuple[str, int]]) -> dict[CallSite, CallPrice]:
    marks, site = located_marks(facts), facts.trace.events.site
    mine = [code for code, known in enumerate(facts.callsites) if (known.file, known.line) in lines]
    outermost = facts.tree.outermost(facts.trace.mask_of(marks[np.isin(site[marks], mine)]))
    divided, count = divide_steps(facts), np.bincount(site[marks], minlength=len(facts.callsites))
    place, ns = divided.by_place()
    prices = {}
    for code in np.unique(site[outermost]).tolist():
        below = marks[facts.tree.under(outermost & (site == code))[marks] | (site[marks] == code)]
        inside = np.bincount(site[below], minlength=len(count))
        whole = np.flatnonzero((inside >= _MOSTLY * count) & (inside > 0))
        share = min(float(ns[np.isin(place, whole)].sum()) / divided.total_ns, 1.0)
        low, high = share * (1 - _UNCERTAINTY), min(share * (1 + _UNCERTAINTY), 1.0)
        prices[facts.callsites[code]] = CallPrice(share, low, high)
    return prices


def _lines_of(remark: Remark) -> frozenset[tuple[str, int]]:
    first = remark.site.line
    return frozenset((remark.site.file, line) for line in range(first, max(remark.until, first) + 1))


def _ran_in_located_step(facts: Facts) -> frozenset[tuple[str, int]]:
    return frozenset((site.file, site.line) for site in sites_of_located_step(facts))


def _together(prices: Iterable[CallPrice]) -> CallPrice:
    columns = zip(*((one.share, one.low, one.high) for one in prices), strict=True)
    share, low, high = (min(sum(column), 1.0) for column in columns)
    return CallPrice(share, low, high)
