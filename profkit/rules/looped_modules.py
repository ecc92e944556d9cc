"""Modules of one shape are called one after the other, although none needs another's result.

What it detects
One line calls the same sequence of operators with the same shapes four times or more in a step, and the source of the
loop shows that it calls another module each time and that no call takes an earlier one's result. Layers that feed each
other, time steps through one module and gradient accumulation also repeat operators and are not reported.

Why is this bad?
Each call pays Python and the dispatcher for every operator, and each product is too small to use the processor well.
The same work in one batch pays once.

Example
    scores = torch.stack([model(x) for model in models])

Use instead
    params, buffers = torch.func.stack_module_state(models)
    call = lambda p, b, x: torch.func.functional_call(models[0], (p, b), (x,))
    scores = torch.vmap(call, in_dims=(0, 0, None))(params, buffers, x)

How the saving is estimated
The operators' own work stays. Dispatch, and Python between the operators, is paid for one call instead of all, and
likewise in the backward pass. The dispatch of an operator is taken to be the time of the cheapest of its name in the
recording, and at most 15 µs. If a batched product is also faster, the gain is larger: `--measure` runs the operators of
the calls one by one and in one batch, and they take what that leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import MATRIX, VIEW, operators_of
from profkit.patterns import backward_of, call_site, length_ns, name_lines, program_operators, spent_ns
from profkit.patterns.loops.located import lines_between, lines_outwards, marks_around
from profkit.patterns.loops.loop_source import calls_independent_modules, is_named_lambda
from profkit.patterns.program import located_operators
from profkit.patterns.releases import INDUCTOR, note_since
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.run.experiment import RUNNABLE_BINARY, RUNNABLE_UNARY, Experiment
from profkit.savings import Edit, Trial, combine, shrink_spans
from profkit.savings.cases import case_of
from profkit.savings.pricing import dispatch_ns
from profkit.trace import Rows, among, distinct

_MIN_CALLS = 4
"""Two or three towers of one shape are an architecture (a Siamese network, two critics); from four on it is a loop."""
_BATCHABLE = RUNNABLE_UNARY | RUNNABLE_BINARY | {"linear", "mm", "addmm", "matmul", "bmm"}
"""Operators that an experiment can run with one more dimension."""
_UNCERTAINTY = 0.5
"""The dispatch cost is an estimate, and a batched product may be faster or, with few cores, as slow as the loop."""


class _ModuleLoop(Struct, frozen=True):
    """In the located step: the line, the marks of the equal runs of one loop, and all operators in them."""

    site: int
    calls: Rows
    operators: Rows

    @property
    def one_call(self) -> Rows:
        return self.operators[: len(self.operators) // len(self.calls)]


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def looped_modules(facts: Facts) -> Suspicions:
    """Look at each line that calls the same operators over and over, the outermost lines first."""
    explained = np.zeros(len(facts.trace.events), dtype=bool)
    for loops in _by_line(list(_find_loops(facts))):
        first, operators = loops[0], np.concatenate([loop.operators for loop in loops])
        if explained[operators].all() or not _shown_independent(facts, first):
            continue
        explained[operators] = True
        rows = _in_measured_steps(facts, loops)
        if not rows.size:
            continue
        calls = max(len(loop.calls) for loop in loops)
        yield Suspicion(
            message=f"{calls} modules of one shape are called one after the other, though none needs another's result.",
            fix="Stack their parameters (`torch.func.stack_module_state`) and call them as one with `torch.vmap` "
            f"over `torch.func.functional_call`{note_since(facts, INDUCTOR)}. Or make them one module with a "
            "batched product (`torch.bmm`, `einsum`).",
            rows=rows,
            edit=_batch(facts, rows, calls),
            confidence=0.8,
            count=sum(len(loop.calls) for loop in loops),
            places=name_lines(facts, [_loop_site(facts, first)]),
            evidence={"calls": calls, "operators_per_call": len(first.one_call)},
            trial=_run_batched(facts, first, rows, calls),
        )


def _by_line(loops: list[_ModuleLoop]) -> list[list[_ModuleLoop]]:
    """The loops of each line, which may run several in a step; the line with most operators first."""
    lines: dict[int, list[_ModuleLoop]] = {}
    for loop in loops:
        lines.setdefault(loop.site, []).append(loop)
    return sorted(lines.values(), key=lambda found: -sum(len(loop.operators) for loop in found))


def _find_loops(facts: Facts) -> Iterator[_ModuleLoop]:
    """Lines that ran several times in a located step's forward pass with equal operators, products among them."""
    operators = located_operators(facts)
    products, mark = operators_of(facts.trace, MATRIX), marks_around(facts)
    for site, numbers, calls in lines_outwards(facts, operators):
        mine = operators[numbers]
        for run in _equal_runs(facts, mine, calls, mark):
            if products[run].any():
                yield _ModuleLoop(site, distinct(calls[among(mine, run)]), run)


def _equal_runs(facts: Facts, operators: Rows, calls: Rows, mark: Rows) -> Iterator[Rows]:
    """Stretches of at least `_MIN_CALLS` consecutive calls that ran operators of equal names and shapes under one
    ``mark``, so in one loop: each call of the loop's function has a mark of the calling line around it."""
    events = facts.trace.events
    bounds = np.flatnonzero(np.diff(calls)) + 1
    parts = np.split(operators, bounds)
    loops = mark[calls[np.concatenate([[0], bounds])]]
    keys = [
        (loop, events.name_code[part].tobytes(), events.dims_code[part].tobytes())
        for loop, part in zip(loops, parts, strict=True)
    ]
    for _, run in itertools.groupby(range(len(keys)), keys.__getitem__):
        if len(equal := [*run]) >= _MIN_CALLS:
            yield np.concatenate([parts[number] for number in equal])


def _shown_independent(facts: Facts, loop: _ModuleLoop) -> bool:
    """Whether the source of the loop's lines shows a call of what varies that takes no earlier call's result."""
    sources = lines_between(facts, int(loop.calls[0]), int(loop.calls[-1]))
    called = call_site(facts, loop.site)
    return called is not None and calls_independent_modules(called.source, sources)


def _loop_site(facts: Facts, loop: _ModuleLoop) -> int:
    """The line of the loop: the line that calls repeatedly or, for a named lambda, the one around all of its calls."""
    outer, own = int(marks_around(facts)[loop.calls[0]]), call_site(facts, loop.site)
    if outer >= 0 and own is not None and is_named_lambda(own.source):
        return int(facts.trace.events.site[outer])
    return loop.site


def _in_measured_steps(facts: Facts, loops: list[_ModuleLoop]) -> Rows:
    """The loops' operators in the measured steps: those of the lines that ran from the first call to the last."""
    rows, located = program_operators(facts), located_operators(facts)
    during = [(located >= loop.operators[0]) & (located <= loop.operators[-1]) for loop in loops]
    sites = distinct(facts.lines.site[located[np.logical_or.reduce(during)]])
    return rows[np.isin(facts.lines.site[rows], sites[sites >= 0])]


def _run_batched(facts: Facts, loop: _ModuleLoop, rows: Rows, calls: int) -> Trial | None:
    """Run the operators of one call as often as the loop does, and in one batch; None if one of them cannot be run."""
    moving = loop.one_call[~operators_of(facts.trace, VIEW)[loop.one_call]]
    cases = [case_of(facts, int(row)) for row in moving]
    known = tuple(case for case in cases if case is not None and case.operator in _BATCHABLE)
    if not facts.operators.has_shapes or len(known) < len(cases):
        return None
    backward = bool(_backward_nodes(facts, rows)[0].size)
    experiment = Experiment("batched-products", known, count=calls, backward=backward)
    return Trial(experiment, lambda factor: _batch(facts, rows, calls, factor))


def _batch(facts: Facts, rows: Rows, calls: int, factor: float | None = None) -> Edit:
    """The loop and its backward pass keep their operators' work; the rest of their time is paid for one call only.

    With a measured ``factor`` the operators keep that share of their time.
    """
    nodes, all_nodes = _backward_nodes(facts, rows)
    stretches = [(rows, program_operators(facts)), (nodes, all_nodes)]
    return combine([_pay_once(facts, mine, among, calls, factor) for mine, among in stretches if mine.size])


def _pay_once(facts: Facts, rows: Rows, among: Rows, calls: int, factor: float | None) -> Edit:
    """Dispatch and Python between the operators ``rows`` vanish for all calls but one.

    A stretch ends where others of ``among`` run, as between two loops on one line.
    """
    place = np.searchsorted(among, rows)
    step = facts.steps.index_of(facts.trace.events.start_ns[rows])
    first = np.concatenate([[0], np.flatnonzero((np.diff(place) != 1) | (np.diff(step) != 0)) + 1])
    last = np.concatenate([first[1:], [len(rows)]]) - 1
    start, end = facts.trace.events.start_ns[rows[first]], facts.tree.end_ns[rows[last]]
    length, once = length_ns(facts, start, end), (calls - 1) / calls
    computing = np.add.reduceat(spent_ns(facts, rows), first)
    if factor is None:
        faster = np.add.reduceat(dispatch_ns(facts, rows, among), first) * once
    else:
        faster = computing * (1 - factor)
    saved = faster + (length - computing) * once
    return shrink_spans(start, end, (length - saved).astype(np.int64), _UNCERTAINTY)


def _backward_nodes(facts: Facts, rows: Rows) -> tuple[Rows, Rows]:
    """The operators' backward nodes, each with the accumulations of gradients that follow it, and all nodes."""
    everything = facts.measured_rows(facts.tree.outermost(facts.lines.backward))
    follows = facts.trace.where_name(lambda name: "AccumulateGrad" in name)[everything]
    mine = among(everything, backward_of(facts, rows))
    leader = np.maximum.accumulate(np.where(follows, 0, np.arange(len(everything))))
    return everything[mine[leader]], everything
