"""Lines that make tensors of lists, and what samples of the program's stacks say of them.

Before PyTorch makes the empty tensor, it goes through the whole list to find its shape and type. In a recording that
looks like any other time between two operators; samples have it on the line. They count where the line's text shows
that it does nothing else: no other call, and no list that is built there.
"""

from __future__ import annotations

import ast

from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.attribution import busiest_site, frequent_lines
from profkit.patterns.places.events import call_site
from profkit.patterns.program import length_ns
from profkit.patterns.time.line_prices import CallPrice, line_prices
from profkit.patterns.time.list_reading import lists_read
from profkit.run.directory import CallSite
from profkit.source.syntax import parse_line
from profkit.trace.events import Rows
from profkit.trace.statistics import among

_MAKING = frozenset(("BoolTensor", "DoubleTensor", "FloatTensor", "IntTensor", "LongTensor", "as_tensor", "tensor"))
_MOVING = frozenset(
    ("bool", "cpu", "cuda", "double", "float", "int", "long", "requires_grad_", "to", "unsqueeze", "view")
)
_BUILDING = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Lambda)


class ListLine(Struct, frozen=True):
    """The ``rows`` of `lists_read` of one line, and ``sampled``: the share of a step that the line takes, if that is
    surely more than the recording shows."""

    site: CallSite | None
    rows: Rows
    sampled: CallPrice | None


@derived_once
def lines_reading_lists(facts: Facts) -> tuple[ListLine, ...]:
    """The lines that do so in most steps."""
    return tuple(_line(facts, rows) for rows in frequent_lines(facts, lists_read(facts).rows))


def _line(facts: Facts, rows: Rows) -> ListLine:
    read, site = lists_read(facts), call_site(facts, busiest_site(facts, rows))
    if site is None or not _only_reads(site.source):
        return ListLine(site, rows, None)
    start_ns = read.start_ns[among(read.rows, rows)]
    spent_ns = facts.steps.per_step_ns(int(length_ns(facts, start_ns, facts.trace.events.start_ns[rows]).sum()))
    recorded = spent_ns / max(facts.steps.usual_ns, 1)
    for price in line_prices(facts):
        if (price.site.file, price.site.line) == (site.file, site.line):
            part = price.own_share / price.share
            if price.low * part > recorded:
                return ListLine(site, rows, CallPrice(price.own_share, price.low * part, price.high * part))
    return ListLine(site, rows, None)


def _only_reads(source: str) -> bool:
    """Whether a line's calls are one that makes a tensor, and such as hand it on."""
    statement = parse_line(source)
    nodes = list(ast.walk(statement)) if statement is not None else []
    names = [_name(node.func) for node in nodes if isinstance(node, ast.Call)]
    makes = [name for name in names if name in _MAKING]
    is_plain = not any(isinstance(node, _BUILDING) for node in nodes)
    return is_plain and len(makes) == 1 and all(name in _MAKING | _MOVING for name in names)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
