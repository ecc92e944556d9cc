"""Modules of one shape are called one after the other, although none needs another's result.

What it detects
One line calls the same sequence of operators with the same shapes four times or more in a step, and the source of the
loop shows that it calls another module each time and that no call takes an earlier one's result. The modules multiply
matrices, or are embedding tables of one width and any number of rows.

All may take one input, or each an input of its own, such as a column of a batch. Then every round of the loop has to
run the same operators on the same shapes, in each recorded step, and where the data flow was recorded it must agree: an
expert that takes the tokens that a router sends it has another number of them each time. Layers that feed each other,
time steps through one module and gradient accumulation also repeat operators and are not reported.

Why is this bad?
Each call pays Python and the dispatcher for every operator, and each product is too small to use the processor well.
The same work in one batch pays once.

Example
    scores = torch.stack([model(x) for model in models])

Use instead
    params, buffers = torch.func.stack_module_state(models)
    call = lambda p, b, x: torch.func.functional_call(models[0], (p, b), (x,))
    scores = torch.vmap(call, in_dims=(0, 0, None))(params, buffers, x)

With an input for each, `in_dims=(0, 0, 0)` and `torch.stack(inputs)`. Linear layers are quicker as one product,
`torch.baddbmm(bias, inputs, weight)` with a weight of `[modules, in, out]`; convolutions as one with `groups`.
Embedding tables become one with the rows of all: `table(x + begins)`, where `begins` tells for each column which row is
its first. A `padding_idx` or `max_norm` of some of them then needs code of its own.

How the saving is estimated
What the operators compute and move stays. Dispatch, and Python between the operators, is paid for one call instead of
all, and likewise in the backward pass. So is what an optimizer's calls and `zero_grad` cost for the modules'
parameters, as these become fewer; updates of whole lists (`foreach`, `fused`) are not counted. Large tensors may leave
the cache if all are one; the range tells both ends. If a batched product is also faster, the gain is larger:
`--measure` runs the operators of the calls one by one and in one batch, and they take what that leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from profkit.derive.families import MATRIX, VIEW, operators_of
from profkit.patterns import (
    Shapes,
    backward_of,
    by_shapes,
    call_site,
    first_shape,
    length_ns,
    name_lines,
    program_operators,
    spent_ns,
)
from profkit.patterns.flow.equal_calls import EqualCalls, rounds_with_operators
from profkit.patterns.flow.own_modules import LOOKUPS, may_have_own_modules
from profkit.patterns.loops.located import lines_between, lines_outwards, marks_around
from profkit.patterns.loops.loop_source import Inputs, inputs_of_modules, is_named_lambda
from profkit.patterns.program import all_nodes, located_operators
from profkit.patterns.releases import INDUCTOR, note_since
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.run.experiment import RUNNABLE_BINARY, RUNNABLE_UNARY, Experiment
from profkit.savings import Edit, Trial, combine, shrink_spans
from profkit.savings.cases import case_of
from profkit.savings.one_call import join_modules, join_updates, runs_of, with_accumulation
from profkit.trace import NONE, Bools, Int64s, Rows, among, distinct, distinct_rows

_MIN_CALLS = 4
"""Two or three towers of one shape are an architecture (a Siamese network, two critics); from four on it is a loop."""
_CONVOLUTIONS = frozenset(name for name in MATRIX if "conv" in name)
_BATCHABLE = RUNNABLE_UNARY | RUNNABLE_BINARY | {"linear", "mm", "addmm", "matmul", "bmm"}
"""Operators that an experiment can run with one more dimension."""
_UNCERTAINTY = 0.5
"""Of a measured share: one operator after the other, without what lies between."""


class _ModuleLoop(Struct, frozen=True):
    """In the located step: the line, the marks of the equal runs of one loop, and all operators in them."""

    site: int
    calls: Rows
    operators: Rows

    @property
    def one_call(self) -> Rows:
        return self.operators[: len(self.operators) // len(self.calls)]

    @property
    def rounds(self) -> EqualCalls:
        return EqualCalls(self.site, self.calls, self.operators.reshape(len(self.calls), -1))


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def looped_modules(facts: Facts) -> Suspicions:
    """Look at each line that calls the same operators over and over, the outermost lines first."""
    explained = np.zeros(len(facts.trace.events), dtype=bool)
    for loops in _by_line(list(_find_loops(facts))):
        first, operators = loops[0], np.concatenate([loop.operators for loop in loops])
        inputs = None if explained[operators].all() else _shown_inputs(facts, first)
        if inputs is None:
            continue
        explained[operators] = True
        rows = _in_measured_steps(facts, loops)
        if not rows.size or (inputs is Inputs.OWN and not _always_have_equal_inputs(facts, loops, rows)):
            continue
        calls = max(len(loop.calls) for loop in loops)
        message, fix = _words(facts, first, calls, inputs)
        yield Suspicion(
            message=message,
            fix=fix,
            rows=rows,
            edit=_batch(facts, rows, calls),
            confidence=0.8,
            count=sum(len(loop.calls) for loop in loops),
            places=name_lines(facts, [_loop_site(facts, first)]),
            evidence={"calls": calls, "operators_per_call": len(first.one_call)},
            trial=_run_batched(facts, first, rows, calls),
        )


def _words(facts: Facts, loop: _ModuleLoop, calls: int, inputs: Inputs) -> tuple[str, str]:
    """The message and the fix, by what the modules are and take."""
    if not operators_of(facts.trace, MATRIX)[loop.one_call].any():
        message = f"{calls} embedding tables of one width are read one after the other, though one could hold them all."
        fix = "Make them one `nn.Embedding` with the rows of all, and read it once: `table(numbers + begins)`, where "
        return message, f"{fix}`begins` tells which row is each table's first."
    one_module = "Or make them one module with a batched product (`torch.bmm`, `einsum`)."
    if operators_of(facts.trace, _CONVOLUTIONS)[loop.one_call].any():
        one_module = f"Or make each convolution one with `groups={calls}`."
    has_own = inputs is Inputs.OWN
    apart = ", each on an input of its own" if has_own else ""
    message = f"{calls} modules of one shape are called one after the other{apart}, though none needs another's result."
    fix = (
        f"Stack their parameters (`torch.func.stack_module_state`){' and their inputs' * has_own} and call them as one "
        f"with `torch.vmap` over `torch.func.functional_call`{note_since(facts, INDUCTOR)}. {one_module}"
    )
    return message, fix + " Their inputs have to stay of one size." * has_own


def _by_line(loops: list[_ModuleLoop]) -> list[list[_ModuleLoop]]:
    """The loops of each line, which may run several in a step; the line with most operators first."""
    lines: dict[int, list[_ModuleLoop]] = {}
    for loop in loops:
        lines.setdefault(loop.site, []).append(loop)
    return sorted(lines.values(), key=lambda found: -sum(len(loop.operators) for loop in found))


def _find_loops(facts: Facts) -> Iterator[_ModuleLoop]:
    """Lines that ran several times in a located step's forward pass with equal operators: products among them, or reads
    of embedding tables."""
    operators = located_operators(facts)
    products, lookups = (operators_of(facts.trace, family) for family in (MATRIX, LOOKUPS))
    exact = facts.trace.events.dims_code[operators].astype(np.int64)
    but_rows = _shapes_but_rows(facts, operators, lookups[operators])
    for site, numbers, calls in lines_outwards(facts, operators):
        mine = operators[numbers]
        multiplies = products[mine].any()
        if not multiplies and not lookups[mine].any():
            continue
        shapes = (exact if multiplies else but_rows)[numbers]
        for run in _equal_runs(facts, mine, shapes, calls):
            if (products if multiplies else lookups)[run].any():
                yield _ModuleLoop(site, distinct(calls[among(mine, run)]), run)


def _shapes_but_rows(facts: Facts, operators: Rows, lookups: Bools) -> Int64s:
    """A number for each operator's shapes, the same for tables with more or fewer rows."""
    codes, known = facts.trace.events.dims_code[operators].astype(np.int64), dict[Any, int]()

    def code(shapes: Shapes) -> int:
        return NONE - 1 - known.setdefault((*(tuple(one) for one in shapes[1:]), *first_shape(shapes)[1:]), len(known))

    if lookups.any():
        codes[lookups] = by_shapes(facts, operators[lookups], code, of=int)
    return codes


def _equal_runs(facts: Facts, operators: Rows, shapes: Int64s, calls: Rows) -> Iterator[Rows]:
    """Stretches of at least `_MIN_CALLS` consecutive calls that ran operators of equal names and ``shapes`` under one
    mark, so in one loop: each call of the loop's function has a mark of the calling line around it."""
    bounds = np.flatnonzero(np.diff(calls)) + 1
    names = facts.trace.events.name_code
    parts = list(zip(np.split(operators, bounds), np.split(shapes, bounds), strict=True))
    loops = marks_around(facts)[calls[np.concatenate([[0], bounds])]]
    keys = [
        (loop, names[part].tobytes(), of_part.tobytes()) for loop, (part, of_part) in zip(loops, parts, strict=True)
    ]
    for _, run in itertools.groupby(range(len(keys)), keys.__getitem__):
        if len(equal := [*run]) >= _MIN_CALLS:
            yield np.concatenate([parts[number][0] for number in equal])


def _shown_inputs(facts: Facts, loop: _ModuleLoop) -> Inputs | None:
    """On what the loop calls what varies, if the source of its lines shows that no call takes an earlier one's result.
    Inputs of their own need more: every round is alike, no backward pass runs in between, and the data flow agrees."""
    sources = lines_between(facts, int(loop.calls[0]), int(loop.calls[-1]))
    called = call_site(facts, loop.site)
    inputs = inputs_of_modules(called.source, sources) if called is not None else None
    if inputs is not Inputs.OWN:
        return inputs
    start = facts.trace.events.start_ns
    begun, over = start[loop.calls[[0, -1]]]
    nodes = start[facts.lines.backward]
    trains = ((nodes > begun) & (nodes < over)).any()
    alone = not trains and rounds_with_operators(facts, loop.rounds) == len(loop.calls)
    return inputs if alone and may_have_own_modules(facts, loop.rounds) else None


def _loop_site(facts: Facts, loop: _ModuleLoop) -> int:
    """The line of the loop: the line that calls repeatedly or, for a named lambda, the one around all of its calls."""
    outer, own = int(marks_around(facts)[loop.calls[0]]), call_site(facts, loop.site)
    if outer >= 0 and own is not None and is_named_lambda(own.source):
        return int(facts.trace.events.site[outer])
    return loop.site


def _in_measured_steps(facts: Facts, loops: list[_ModuleLoop]) -> Rows:
    """The loops' operators in the measured steps: those of the lines that ran from the first call to the last."""
    rows = program_operators(facts)
    return rows[np.isin(facts.lines.site[rows], _sites(facts, loops))]


def _sites(facts: Facts, loops: list[_ModuleLoop]) -> Rows:
    located = located_operators(facts)
    during = [(located >= loop.operators[0]) & (located <= loop.operators[-1]) for loop in loops]
    sites = distinct(facts.lines.site[located[np.logical_or.reduce(during)]])
    return sites[sites >= 0]


def _always_have_equal_inputs(facts: Facts, loops: list[_ModuleLoop], rows: Rows) -> bool:
    """Whether no measured step has more different shapes in the loops' lines than the located one."""
    located, weighted = located_operators(facts), operators_of(facts.trace, MATRIX, LOOKUPS)
    located = located[np.isin(facts.lines.site[located], _sites(facts, loops)) & weighted[located]]
    rows = rows[weighted[rows]]
    both, name, dims = np.concatenate([located, rows]), facts.trace.events.name_code, facts.trace.events.dims_code
    _, kind = distinct_rows(name[both], dims[both])
    first, _ = distinct_rows(facts.step_of(rows), kind[len(located) :])
    in_step = np.bincount(np.unique(facts.step_of(rows[first]), return_inverse=True)[1])
    return int(in_step.max(initial=0)) <= len(distinct(kind[: len(located)]))


def _run_batched(facts: Facts, loop: _ModuleLoop, rows: Rows, calls: int) -> Trial | None:
    """Run the operators of one call as often as the loop does, and in one batch; None if one of them cannot be run."""
    moving = loop.one_call[~operators_of(facts.trace, VIEW)[loop.one_call]]
    cases = [case_of(facts, int(row)) for row in moving]
    known = tuple(case for case in cases if case is not None and case.operator in _BATCHABLE)
    if not facts.operators.has_shapes or len(known) < len(cases):
        return None
    backward = bool(backward_of(facts, rows).size)
    experiment = Experiment("batched-products", known, count=calls, backward=backward)
    return Trial(experiment, lambda factor: _batch(facts, rows, calls, factor))


def _batch(facts: Facts, rows: Rows, calls: int, factor: float | None = None) -> Edit:
    """One call for all. With a measured ``factor`` the operators keep that share of their time."""
    if factor is None:
        return join_modules(facts, rows, 1 / calls)
    nodes = with_accumulation(facts, backward_of(facts, rows))
    stretches = [(rows, program_operators(facts)), (nodes, all_nodes(facts))]
    batched = [_keep_share(facts, mine, among, calls, factor) for mine, among in stretches if mine.size]
    return combine([*batched, join_updates(facts, rows, 1 / calls)])


def _keep_share(facts: Facts, rows: Rows, among: Rows, calls: int, factor: float) -> Edit:
    """The operators ``rows`` keep a share of their time, and Python between them is paid for one call."""
    first, last = runs_of(facts, rows, among)
    start, end = facts.trace.events.start_ns[rows[first]], facts.tree.end_ns[rows[last]]
    length, computing = length_ns(facts, start, end), np.add.reduceat(spent_ns(facts, rows), first)
    kept_ns = computing * factor + (length - computing) / calls
    return shrink_spans(start, end, kept_ns.astype(np.int64), _UNCERTAINTY)
