"""A moving average of a model's weights is computed on copies of the whole model, in each step.

What it detects
In one call of a function: lines that only copy eight tensors or more (`copy.deepcopy`, `state_dict`, `clone`,
`load_state_dict`), and a loop that scales and adds as many, if each copying line gives a name that the loop reads, or
loads what the loop writes. Copies that nothing averages, such as a snapshot of the best weights or the fast weights of
meta-learning, are silent. So are copies of weights that are trained before the average, as in Reptile, and a loop on
the weights themselves, which `looped-parameters` looks at.

Why is this bad?
A deep copy walks through all tensors in Python, and makes a storage, a tensor and a note for each. The average reads
every copy once, writes a third set of tensors, and a fourth pass copies them back. The average itself is one operator,
which changes the weights where they lie.

Example
    mine, theirs = copy.deepcopy(teacher.state_dict()), copy.deepcopy(student.state_dict())
    for name in mine:
        mine[name] = decay * mine[name] + (1 - decay) * theirs[name]
    teacher.load_state_dict(mine)

Use instead
    with torch.no_grad():
        torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - decay)

How the saving is estimated
All goes from the first operator of these lines to the last, with Python's time between, and the giving back of copies
whenever it comes. Of the loop one operator for each tensor stays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import operators_of
from profkit.patterns import Places, call_site, locations_of, program_operators, spent_ns
from profkit.patterns.flow.copying_lines import LEAST_TENSORS, located_lines, runs_among, statements_of
from profkit.patterns.program import located_operators
from profkit.rules.base import MEDIUM_FROM, CallSite, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit
from profkit.savings.pricing import shrink_runs
from profkit.source.statements import effect_of, names_in
from profkit.source.syntax import name_called

_ADDING = frozenset(("add", "lerp", "sub"))
_AVERAGING = _ADDING | frozenset(("detach", "mul", "rsub"))
_COPIES_FROM, _COPIES_INTO = frozenset(("clone", "deepcopy", "state_dict")), frozenset(("load_state_dict",))
_UNCERTAINTY = 0.3
"""How much of Python's time before the first operator of a line belongs to it is not recorded."""


class _Average(Struct, frozen=True):
    """A loop's line, the lines that copy for it, and how many tensors."""

    line: int
    copying: tuple[int, ...]
    tensors: int


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def average_through_copies(facts: Facts) -> Suspicions:
    """One finding for each loop."""
    for found in _find(facts):
        edit = _without_copies(facts, found)
        lines = [found.line, *sorted(found.copying, key=lambda line: -_spent(facts, line))]
        copies = len(found.copying)
        yield Suspicion(
            message=f"A moving average of {found.tensors} tensors is computed on copies: {copies} "
            f"{'line copies' if copies == 1 else 'lines copy'} all of them in each step.",
            fix="Average in place, without copies: `torch._foreach_lerp_(mine, theirs, 1 - decay)` on lists of the "
            "parameters under `torch.no_grad()`, or `torch.optim.swa_utils.AveragedModel` with "
            "`get_ema_multi_avg_fn`.",
            edit=edit,
            worth=MEDIUM_FROM,
            confidence=0.85,
            count=found.tensors,
            places=Places.of(locations_of(facts, lines)),
            evidence={"tensors": found.tensors, "copying_lines": copies},
        )


def _find(facts: Facts) -> Iterator[_Average]:
    """Loops and copying lines under one mark: in one call of a function."""
    lines, operators = located_lines(facts), located_operators(facts)
    averaged, added = (lines.count(operators_of(facts.trace, kind)[operators]) for kind in (_AVERAGING, _ADDING))
    for place in np.flatnonzero((averaged == lines.operators) & (added >= LEAST_TENSORS)).tolist():
        beside = lines.only_copies & (lines.call == lines.call[place]) & (lines.passed == lines.passed[place])
        site, mine = int(lines.site[place]), lines.site[beside].tolist()
        mine = [one for one in mine if _serves(call_site(facts, one), call_site(facts, site))]
        if mine:
            yield _Average(site, tuple(mine), int(added[place]))


def _serves(copying: CallSite | None, averaging: CallSite | None) -> bool:
    """Whether a line copies tensors for the average: it gives a name that the other reads, or loads what the other
    writes. A name that both only read, such as the model's, is no tie."""
    one, other = statements_of(copying), statements_of(averaging)
    called = {name_called(node) for part in one for node in ast.walk(part) if isinstance(node, ast.Call)}
    given, taken = (
        _changed(one) if called & _COPIES_FROM else set[str](),
        _read(one) if called & _COPIES_INTO else set[str](),
    )
    return not given.isdisjoint(_read(other)) or not taken.isdisjoint(_changed(other))


def _changed(statements: list[ast.stmt]) -> set[str]:
    return {name for statement in statements for name in effect_of(statement).changes}


def _read(statements: list[ast.stmt]) -> set[str]:
    """Names in them, but for those that a comprehension gives itself and objects whose attributes are read."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    own = {name for node in nodes if isinstance(node, ast.comprehension) for name in names_in(node.target)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in owners} - own


def _without_copies(facts: Facts, found: _Average) -> Edit:
    """The copying lines vanish, with what Python does around them and the memory that they take; of the loop one
    operator a tensor stays."""
    rows = program_operators(facts)
    mine = rows[np.isin(facts.lines.site[rows], [found.line, *found.copying])]
    runs = runs_among(facts, mine)
    adding = facts.trace.mask_of(
        mine[(facts.lines.site[mine] == found.line) & operators_of(facts.trace, _ADDING)[mine]]
    )
    kept = np.array([spent_ns(facts, run[adding[run]]).sum() for run in runs], dtype=np.int64)
    return shrink_runs(facts, runs, kept, _UNCERTAINTY)


def _spent(facts: Facts, line: int) -> int:
    rows = program_operators(facts)
    return int(spent_ns(facts, rows[facts.lines.site[rows] == line]).sum())
