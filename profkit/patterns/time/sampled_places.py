"""Lines for what a recording names no line of, by samples of the program's stacks.

Marks of lines run out where a step runs very many of them. What follows a known loop is told by its operators
(`profkit.derive.steps.continuing`); the rest has no line. Samples see every line of a plain step: those at which more
time passes than the recording places there hold what it places nowhere. On a device the host's lines do not tell.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.places.events import call_site
from profkit.patterns.time.divided import Divided, divide_steps
from profkit.patterns.time.line_prices import line_prices
from profkit.run.directory import CallSite
from profkit.trace.events import Float64s

_LEAST_EXCESS = 0.05
"""Of the step. Samples of a step differ from its recording by less."""
_MOSTLY = 0.5
"""Of what has no line: if the lines that are left explain less, they are not where it runs."""


class SampledPlace(Struct, frozen=True):
    """A line, and the share of the step that it takes of what the recording places at no line."""

    site: CallSite
    share: float


@derived_once
def sampled_places(facts: Facts) -> tuple[SampledPlace, ...]:
    """The lines at which the recording's unplaced time passes, the one with most first; empty if samples do not tell or
    if nothing much is unplaced."""
    prices = line_prices(facts)
    if not prices or facts.device.present or not facts.lines.known:
        return ()
    divided = divide_steps(facts)
    places, taken_ns = divided.by_place()
    unplaced = float(taken_ns[(places < 0) | (places >= divided.lines)].sum()) / divided.total_ns
    known = _by_calling_line(facts, divided)
    more = [(price.own_share - known[price.site.file, price.site.line], price.site) for price in prices]
    found = sorted(((share, site) for share, site in more if share >= _LEAST_EXCESS), key=lambda one: -one[0])
    total = sum(share for share, _ in found)
    if unplaced < _LEAST_EXCESS or total < _MOSTLY * unplaced:
        return ()
    scale = min(1.0, unplaced / total)
    return tuple(SampledPlace(site, share * scale) for share, site in found)


def _by_calling_line(facts: Facts, divided: Divided) -> defaultdict[tuple[str, int], float]:
    """The share of the step that the recording places at each line, a backward pass at the line that runs it: so do
    samples."""
    host, gaps, lines = divided.host, divided.gaps, facts.lines
    site = np.where(lines.backward[host.rows], lines.site[host.rows].astype(np.int64), host.place)
    of_gap = gaps.in_backward[gaps.of]
    between_nodes_ns = float(gaps.parts_ns()[of_gap].sum())
    of_sites = _sums(site, host.time_ns, divided.lines) + _sums(
        gaps.place[~of_gap], gaps.parts_ns()[~of_gap], divided.lines
    )
    running = _sums(site[lines.backward[host.rows]], host.time_ns[lines.backward[host.rows]], divided.lines)
    of_sites += between_nodes_ns * running / max(float(running.sum()), 1.0)
    shares = defaultdict[tuple[str, int], float](float)
    for number in np.flatnonzero(of_sites).tolist():
        if (found := call_site(facts, number)) is not None:
            shares[found.file, found.line] += float(of_sites[number]) / divided.total_ns
    return shares


def _sums(site: np.ndarray[tuple[int], np.dtype[np.int64]], time_ns: Float64s, count: int) -> Float64s:
    known = (site >= 0) & (site < count)
    return np.bincount(site[known], time_ns[known], count).astype(np.float64)
