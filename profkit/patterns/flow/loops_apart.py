"""What kind of loop equal calls are in: one over a loader's batches, one over parts of a batch, one that goes
through a model, or rounds that each have a backward pass and could share one."""

from __future__ import annotations

import ast

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import operators_of, writes_in_place
from profkit.patterns.flow.data_flow import calls_around, located_flow
from profkit.patterns.flow.equal_calls import EqualCalls, loops_of, rounds_with_operators
from profkit.patterns.loops.independent_rounds import goes_through_a_model, head_of, rounds_are_independent
from profkit.patterns.loops.located import body_and_called, lines_between, located_marks
from profkit.patterns.loops.loop_source import inputs_of_modules
from profkit.patterns.places.events import call_site
from profkit.patterns.program import backward_of
from profkit.patterns.row_loops import RANDOM
from profkit.run.directory import CallSite
from profkit.source.statements import names_in
from profkit.source.syntax import name_called, parse_line
from profkit.trace.events import Bools, Rows
from profkit.trace.statistics import among, distinct

_FEW_BYTES = 16 << 20
"""Importing PyTorch takes more than ten times as much, so nobody runs several backward passes to save them. A result
that is larger moves through memory with fresh pages: sixteen rounds of a loss on 1.6 MB took 214 ms with their backward
pass, all at once 248 ms (one thread, AMD EPYC, torch 2.13)."""
_MOST = 0.75
"""Of four rounds with operators one may differ: the first one may begin a sum, as `0 + x`."""
_MOSTLY_AGAIN = 0.5
"""Of the rounds' calls: if so many compute the same from the same inputs, one round is enough."""
_OF_MODULES = ("bias", "weight")
_CUTTING = frozenset(("chunk", "split", "tensor_split", "array_split"))
"""Functions that cut a batch into parts."""


def comes_from_a_loader(facts: Facts, calls: EqualCalls) -> bool:
    """Whether most rounds ask a DataLoader for what they work on: they are its batches."""
    start, asked = facts.trace.events.start_ns, np.flatnonzero(facts.loading)
    begun, over = int(start[calls.marks[0]]), int(start[calls.marks[-1]])
    between = int(((start[asked] > begun) & (start[asked] < over)).sum())
    return between * 2 >= len(calls.marks) - 1 > 0


def is_a_loop_of_its_own(facts: Facts, calls: EqualCalls, computing: Bools) -> bool:
    """Whether calls that multiply no matrices are rounds of one body: they do not go through a model's parameters or
    modules or a list of tensors of several shapes, write to nothing of their own, and differ in what they take. If the
    results of all of them were large, they are better apart."""
    rows = calls.operators[0]
    if facts.allocated_bytes[calls.operators].sum(axis=0).max() > _FEW_BYTES:
        return False
    if len(calls.marks) < _MOST * rounds_with_operators(facts, calls):
        return False
    if any(writes_in_place(facts.trace.name_of(row)) for row in rows[computing].tolist()):
        return False
    if _have_parameters_each(facts, calls) or _compute_the_same(facts, calls):
        return False
    site, is_random = call_site(facts, calls.site), operators_of(facts.trace, RANDOM)[rows].any()
    for run in loops_of(facts, calls):
        body, _ = _lines_of(facts, run)
        lines = lines_between(facts, int(run[0]), int(run[-1]))
        varies = site is not None and inputs_of_modules(site.source, lines) is not None
        if varies or goes_through_a_model(body) or _reads_weights(body) or (not is_random and _takes_the_same(body)):
            return False
    return True


def could_share_a_pass(facts: Facts, calls: EqualCalls) -> bool:
    """Whether the rounds of one loop, each with a backward pass of its own, need not be apart: its source shows that no
    round needs another's result; they are neither a loader's batches nor parts of one; nothing updates weights in
    between; and together the rounds would take little memory. Otherwise they accumulate gradients to save it."""
    bytes_ = facts.allocated_bytes[calls.operators].sum()
    if not facts.memory.present or not calls.is_one_loop(facts) or not 0 < bytes_ <= _FEW_BYTES:
        return False
    if comes_from_a_loader(facts, calls):
        return False
    start, run = facts.trace.events.start_ns, calls.marks
    passes = np.searchsorted(np.sort(start[facts.lines.backward]), start[run])
    updates = np.searchsorted(np.sort(start[facts.updates.rows]), start[run])
    if (np.diff(passes) == 0).any() or updates[0] != updates[-1]:
        return False
    body, called = _lines_of(facts, run)
    return not _cuts_a_batch(body) and rounds_are_independent(body, called, may_differentiate=True)


def _have_parameters_each(facts: Facts, calls: EqualCalls) -> bool:
    """Whether the backward pass stores a gradient for most of the calls: each has a parameter of its own."""
    nodes = np.flatnonzero(facts.tree.outermost(facts.lines.backward))
    mine = among(nodes, backward_of(facts, calls.operators.ravel()))
    stores = facts.trace.where_name(lambda name: "AccumulateGrad" in name)[nodes]
    return bool((mine[:-1] & stores[1:]).sum() * 2 >= len(calls.marks))


def _lines_of(facts: Facts, run: Rows) -> tuple[list[CallSite], list[CallSite]]:
    """The lines of a loop's body and those that it calls."""
    first, marks = int(run[0]), located_marks(facts)
    inside = marks[(marks >= first) & (marks < facts.tree.stop[int(run[-1])])]
    return body_and_called(facts, inside, first)


def _compute_the_same(facts: Facts, calls: EqualCalls) -> bool:
    """Whether the watch of calls saw that the rounds mostly compute again what the step has computed before."""
    located, known = located_flow(facts), facts.run.recomputation
    if located is None or known is None:
        return False
    numbers = distinct(calls_around(facts, located, calls.operators.ravel()))
    numbers = numbers[numbers >= 0]
    again = [number for number, _ in known.again]
    return bool(numbers.size) and bool(np.isin(numbers, again).mean() >= _MOSTLY_AGAIN)


def _takes_the_same(body: list[CallSite]) -> bool:
    """Whether no line of a loop reads what its head gives: it does the same again."""
    head = parse_line(head_of(body).source) if body else None
    if not isinstance(head, ast.For):
        return False
    others = [parse_line(site.source) for site in body if site != head_of(body)]
    return not any(names_in(head.target) & names_in(line) for line in [*others, *head.body] if line is not None)


def _reads_weights(body: list[CallSite]) -> bool:
    """Whether a line reads a parameter by the names that PyTorch's modules give theirs: `layer.weight`."""
    parts = [node for site in body for node in ast.walk(parse_line(site.source) or ast.Pass())]
    names = [node.attr for node in parts if isinstance(node, ast.Attribute)]
    return any(kind in name for name in names for kind in _OF_MODULES)


def _cuts_a_batch(body: list[CallSite]) -> bool:
    """Whether the head of a loop goes through parts of a batch: `x.chunk(4)`, or every n-th number of a range."""
    head = parse_line(head_of(body).source) if body else None
    calls = [node for node in ast.walk(head.iter) if isinstance(node, ast.Call)] if isinstance(head, ast.For) else []
    strides = any(name_called(call) == "range" and len(call.args) > 2 for call in calls)
    return strides or any(name_called(call) in _CUTTING for call in calls)
