"""All weights are copied in each step, and nothing reads the copy before the next one takes its place.

What it detects
A line that does nothing but copy tensors (`copy.deepcopy(model.state_dict())`, a comprehension of `clone`) and gives
the result to a name or an attribute, in at least half of the steps. It copies eight tensors or more, and at least half
as many as the optimizer trains, and no line of the step reads that name. Not reported: copies that the step reads, such
as fast weights, a target network or weights to go back to; copies that are gathered in a list; and copies that are made
once in a while. An average of copies is `average-through-copies`.

Why is this bad?
To keep the best weights, a copy is needed when they are the best so far: seldom, and not known before an evaluation. A
deep copy walks through all tensors in Python, and makes new memory for each.

Example
    for x, y in batches:
        loss = train_step(x, y)
        if loss < best_loss:  # early in training nearly always
            best_loss, best = loss, copy.deepcopy(model.state_dict())

Use instead
    for epoch in range(epochs):
        train(batches)
        if (loss := evaluate(model)) < best_loss:
            best_loss, best = loss, copy.deepcopy(model.state_dict())

How the saving is estimated
All goes from the first operator of the line to its last, with Python's time between, and the giving back of the earlier
copy whenever it comes. What Python does before the first operator is not counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np

from profkit.patterns import Places, call_site, in_most_steps, locations_of
from profkit.patterns.flow.copying_lines import located_lines, runs_among, statements_of
from profkit.patterns.loops.located import sites_of_located_step
from profkit.patterns.program import located_operators
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import MEDIUM_FROM, CallSite, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit
from profkit.savings.pricing import shrink_runs
from profkit.trace import Rows

_LEAST_OF_TRAINED = 0.5
"""Of the tensors that the optimizer trains: the copy is of a model, not of a part that the step works on."""
_UNCERTAINTY = 0.3
"""What Python does before the first operator of the line is not recorded, nor what a seldom copy will cost."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def state_copied_in_step(facts: Facts) -> Suspicions:
    """One finding for each line."""
    lines, operators, seen = located_lines(facts), located_operators(facts), set[int]()
    trained = max((used.parameters for used in facts.run.optimizers), default=0)
    for place in np.flatnonzero(lines.only_copies & (lines.copies >= _LEAST_OF_TRAINED * trained)).tolist():
        site = int(lines.site[place])
        where = call_site(facts, site)
        if where is None or site in seen or not _is_unread(facts, where):
            continue
        rows = repeated_in_measured(facts, lines.under(place, operators))
        if in_most_steps(facts, rows):
            seen.add(site)
            yield _suspect(facts, site, rows, int(lines.copies[place]))


def _suspect(facts: Facts, site: int, rows: Rows, tensors: int) -> Suspicion:
    return Suspicion(
        message=f"Each step copies {tensors} tensors of a model, and nothing in the step reads the copy. The next one "
        "takes its place.",
        fix="Copy the weights when an evaluation says that they are the best so far, at most once an epoch. Or write "
        "over one copy, which makes no new memory: `torch._foreach_copy_(kept, list(model.state_dict().values()))`.",
        rows=rows,
        edit=_without(facts, rows),
        worth=MEDIUM_FROM,
        confidence=0.8,
        count=1,
        places=Places.of(locations_of(facts, [site])),
        evidence={"tensors": tensors},
    )


def _without(facts: Facts, rows: Rows) -> Edit:
    runs = runs_among(facts, rows)
    return shrink_runs(facts, runs, np.zeros(len(runs), dtype=np.int64), _UNCERTAINTY)


def _is_unread(facts: Facts, copying: CallSite) -> bool:
    """Whether the line gives its copy to names or attributes, and no line of the step reads these."""
    targets = {ast.unparse(target) for statement in statements_of(copying) for target in _given(statement)}
    others = [site for site in sites_of_located_step(facts) if (site.file, site.line) != (copying.file, copying.line)]
    return bool(targets) and not any(
        targets.intersection(_read(statement)) for site in others for statement in statements_of(site)
    )


def _given(statement: ast.stmt) -> Iterator[ast.expr]:
    """To what an assignment gives its values: `state["best"]` is `state`, which may hold much else."""
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,):
            yield _whole(part)


def _whole(part: ast.expr) -> ast.expr:
    return _whole(part.value) if isinstance(part, ast.Subscript) else part


def _read(statement: ast.stmt) -> Iterator[str]:
    """Names and attributes that are read, but for questions whether they are None."""
    asked = [node.left for node in ast.walk(statement) if isinstance(node, ast.Compare) and _asks_for_none(node)]
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and node not in asked:
            yield ast.unparse(node)


def _asks_for_none(node: ast.Compare) -> bool:
    (other, *more) = node.comparators
    return not more and isinstance(other, ast.Constant) and other.value is None
