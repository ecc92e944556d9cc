"""From events to places in the user's code: a marked line, or the function around it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import base_name
from profkit.patterns.places.frames import commonest_function, user_frames
from profkit.run.directory import CallSite
from profkit.source.syntax import last_name, parse_piece
from profkit.trace.events import Int32s, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

_WRITTEN: Mapping[str, type[ast.AST]] = {
    "__and__": ast.BitAnd,
    "__or__": ast.BitOr,
    "add": ast.Add,
    "bitwise_and": ast.BitAnd,
    "bitwise_not": ast.Invert,
    "bitwise_or": ast.BitOr,
    "div": ast.Div,
    "eq": ast.Eq,
    "floor_divide": ast.FloorDiv,
    "ge": ast.GtE,
    "gt": ast.Gt,
    "index": ast.Subscript,
    "index_put": ast.Subscript,
    "le": ast.LtE,
    "lt": ast.Lt,
    "mul": ast.Mult,
    "ne": ast.NotEq,
    "neg": ast.USub,
    "pow": ast.Pow,
    "remainder": ast.Mod,
    "rsub": ast.Sub,
    "sub": ast.Sub,
}
"""How the source spells operators that it does not name (language reference, Emulating numeric types)."""


def call_site(facts: Facts, site: int) -> CallSite | None:
    """The call site with this number, None if no line is known."""
    return facts.callsites[site] if 0 <= site < len(facts.callsites) else None


def call_sites(facts: Facts, sites: Int32s | Int64s) -> list[CallSite]:
    """The known lines among these call sites, each once, in the order of their numbers."""
    return [place for site in distinct(sites) if (place := call_site(facts, int(site)))]


def runs_inside_a_call(facts: Facts, rows: Rows) -> bool:
    """Whether these operators run inside a function that their line calls: the line calls something, and contains
    neither the name nor the symbol of any of them. As lines are the innermost ones of the program, the operators are
    then in a library. False if no line is known, or one cannot be parsed."""
    sites, named = facts.lines.site[rows], facts.trace.events.name_code[rows]
    places = {int(site): call_site(facts, int(site)) for site in distinct(sites)}
    lines = {site: parse_piece(place.source) for site, place in places.items() if place is not None}
    names = {code: base_name(facts.trace.names[code]) for code in distinct(named)}
    first, _ = distinct_rows(sites, named)
    pairs = zip(sites[first].tolist(), named[first].tolist(), strict=True)
    return bool(lines) and all(_calls_for(lines.get(site), names[code]) for site, code in pairs)


def _calls_for(line: ast.stmt | None, operator: str) -> bool:
    """``y = act(x)`` calls something for ``tanh``; ``y = x * torch.tanh(x)`` spells it out, and ``mul`` too."""
    nodes = list(ast.walk(line)) if line is not None else []
    symbol, names = _WRITTEN.get(operator, ()), (operator, f"{operator}_")
    is_written = any(isinstance(node, symbol) or last_name(node) in names for node in nodes)
    return not is_written and any(isinstance(node, ast.Call) for node in nodes)


def enclosing_function(facts: Facts, rows: Rows) -> CallSite | None:
    """The function of the user's code that most of the rows run in, by recorded Python frames."""
    return commonest_function(facts, frames_around(facts)[rows])


@derived_once
def frames_around(facts: Facts) -> Rows:
    """For each event the innermost frame of the user's code around it. The autograd engine's thread has none; there it
    is the frame of the forward operator."""
    frames, forward = user_frames(facts), facts.lines.forward
    around = facts.tree.nearest_ancestor(frames)
    return np.where((around < 0) & (forward >= 0), around[forward], around) if frames.any() else around
