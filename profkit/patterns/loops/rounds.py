"""Rounds of Python loops in the located step: one line of a loop marks each round, whatever it calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.patterns.loops.located import marks_around
from profkit.trace.events import NONE, Int64s, Rows

_DEEPEST_LEVEL = 64
"""How many levels of marks are considered, from the program's outermost line on."""


class Rounds(Struct, frozen=True):
    """A loop in which one line led to each of some events: that line's marks, one per round, and their level."""

    events: Rows
    marks: Rows
    level: int


def find_rounds(facts: Facts, rows: Rows) -> Iterator[Rounds]:
    """Loops over these events, in time order: from one event to the next, the chain of lines that led to it changes at
    the same level, below the same mark, and at the same line."""
    chains = mark_chains(facts, rows)
    if len(rows) < 2 or not chains.size:
        return
    differ = chains[1:] != chains[:-1]
    level = np.where(differ.any(axis=1), differ.argmax(axis=1), NONE)
    pair = np.arange(len(rows) - 1)
    here, after = chains[pair, level], chains[pair + 1, level]
    site = facts.trace.events.site
    joined = (level >= 0) & (here >= 0) & (after >= 0) & (site[here] == site[after])
    level = np.where(joined, level, NONE)
    for part in np.split(pair, np.flatnonzero(np.diff(level)) + 1):
        if level[part[0]] >= 0:
            members = np.append(part, part[-1] + 1)
            yield Rounds(rows[members], chains[members, level[part[0]]], int(level[part[0]]))


def mark_chains(facts: Facts, rows: Rows) -> Int64s:
    """The marks around each of the events, one row per event, outermost first, padded with `NONE`."""
    around = marks_around(facts)
    levels: list[Int64s] = []
    above = around[rows].astype(np.int64)
    while (above >= 0).any() and len(levels) < _DEEPEST_LEVEL:
        levels.append(above)
        above = np.where(above >= 0, around[above], NONE)
    chains = np.array(levels, dtype=np.int64).reshape(len(levels), len(rows))[::-1].T
    first = (chains < 0).sum(axis=1)  # the padding of a row with fewer levels
    columns = (np.arange(chains.shape[1]) + first[:, None]) % max(chains.shape[1], 1)
    return np.take_along_axis(chains, columns, axis=1)
