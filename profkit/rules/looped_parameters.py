"""A Python loop over a model's parameters or gradients calls small operators for one tensor after another.

What it detects
A loop or a comprehension of thirty-two rounds or more that clips, averages, adds up or updates parameters, gradients or
buffers one by one, if its operators have a form for whole lists of tensors (`torch._foreach_…`) and the source of its
lines shows that no round needs what an earlier one computed. A round may write to its own parameter, branch on it, and
read a number. Not reported: products of matrices, random numbers, and updates inside an optimizer's step, which belong
to `single-tensor-optimizer`.

Why is this bad?
For each parameter Python binds names, looks up attributes and calls the dispatcher several times, for a few kilobytes
of data. A network with a hundred tensors pays for hundreds of calls a step, and on a GPU for as many launches.

Example
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm().item() ** 2
    for p in model.parameters():
        p.grad.mul_(min(1.0, 1.0 / total**0.5))

Use instead
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

How the saving is estimated
On a CPU the lists are still worked through one tensor after another, but in C++: each operator on a tensor keeps its
own time, and Python's time between two operators vanishes, but at most 10 µs of each gap. What works on single numbers,
and reading them, is paid once instead of in each round. If a round only scales and adds, as a moving average does,
`lerp` does so in one operator instead of k. On a GPU one n-th of the launches of n rounds stays, and of
each kernel the time beyond that of the shortest. If the operators are part of the loss, as a penalty on weights is, one
operator of k for each parameter stays, and of the backward nodes likewise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import VIEW, base_name, operators_of
from profkit.derive.timeline.intervals import stretches
from profkit.patterns import (
    Places,
    backward_of,
    by_shapes,
    in_most_steps,
    length_ns,
    locations_of,
    order_sites,
    program_operators,
    spent_ns,
    works_under,
)
from profkit.patterns.calls import in_a_step
from profkit.patterns.loops.independent_rounds import goes_through_a_model, head_of, rounds_are_independent
from profkit.patterns.loops.located import body_and_called, marks_around
from profkit.patterns.loops.repeated_lines import RepeatedLines, repeated_lines
from profkit.patterns.program import run_for_the_program
from profkit.rules.base import LOW_FROM, CallSite, Facts, Kind, Need, Suspicion, Suspicions, format_count, rule
from profkit.savings import Edit, combine, shrink_spans, shrink_work
from profkit.savings.pricing import PYTHON_NS, scale_beside_spans
from profkit.trace import Bools, Rows, distinct

_MIN_ROUNDS = 32
"""A network of ten layers has as many parameters; with fewer, all of it takes less than a tenth of a millisecond."""
_MIN_OPERATORS = 64
"""Operators on tensors per step: sixty-four times a few microseconds show."""
_WITH_LISTS = """
    abs add addcdiv addcmul ceil clamp clamp_max clamp_min copy cos div erf exp expm1 floor frac lerp lgamma
    linalg_vector_norm log log1p log2 log10 max maximum minimum mul neg norm pow reciprocal round rsqrt sigmoid sign sin
    sqrt square sub sum tan tanh trunc zero"""
_ON_LISTS = frozenset(_WITH_LISTS.split())
"""Operators with a form that takes a list (`torch._foreach_…`), or that a norm of each tensor replaces: squares, sums
and lengths. The largest and smallest of each tensor, `max`, are there too."""
_MAKING = """
    _local_scalar_dense _to_copy clone contiguous detach empty empty_like empty_strided fill full item lift_fresh
    new_empty new_zeros ones_like result_type to zeros zeros_like"""
_PREPARING = VIEW | frozenset(_MAKING.split())
"""They make, copy or read tensors."""
_FIX = (
    "Gather the tensors in a list once and give it to functions that take lists: {functions}. "
    "`torch.nn.utils.clip_grad_norm_` clips gradients, `torch.nn.utils.get_total_norm` measures them, and "
    "`torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn` keeps a moving average."
)
_PENALTY = (
    "A penalty on squares belongs in the optimizer: `weight_decay` is twice its factor, and needs no backward "
    "pass. For other penalties use functions that take the whole list of parameters: {functions}."
)
_AVERAGES = frozenset(("add", "lerp", "mul", "sub"))
"""With these alone, two or more for each tensor, a loop moves an average."""
_UNCERTAINTY = 0.3
"""Making and walking the lists costs as well, and how much of Python's time belongs to the loop is not recorded."""


class _Loop(Struct, frozen=True):
    """A loop in the located step: its head, the lines of its operators (the costliest first), these operators, and the
    number of rounds."""

    head: CallSite
    lines: list[int]
    rows: Rows
    rounds: int


class _Run(Struct, frozen=True):
    """A run of a loop in a measured step."""

    rows: Rows
    rounds: int


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.LINES)
def looped_parameters(facts: Facts) -> Suspicions:
    """Look at each loop of the located step, and report those of one function together."""
    by_function: dict[tuple[str, str], list[_Loop]] = {}
    for loop in _find_loops(facts):
        by_function.setdefault((loop.head.file, loop.head.function), []).append(loop)
    for loops in by_function.values():
        runs = [run for loop in loops for run in _in_measured_steps(facts, loop)]
        rows = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *(run.rows for run in runs)]))
        working = int(_works_on_tensors(facts, rows).sum() / facts.steps.measured_count)
        if working >= _MIN_OPERATORS and in_most_steps(facts, rows):
            yield _suspect(facts, loops, runs, rows, working)


def _suspect(facts: Facts, loops: list[_Loop], runs: list[_Run], rows: Rows, working: int) -> Suspicion:
    steps = facts.steps.measured_count
    rounds = round(sum(run.rounds for run in runs) / steps)
    count = round(len(rows) / steps)
    lines = order_sites(facts.lines.site[rows], spent_ns(facts, rows))
    heads = locations_of(facts, [facts.callsites.index(loop.head) for loop in loops])
    in_loss = backward_of(facts, rows).size > 0
    return Suspicion(
        message=f"A Python loop over parameters, gradients or buffers makes {rounds:,} rounds "
        f"{in_a_step(facts)} and calls {format_count(count, 'operator')}, a few in each.",
        fix=(_PENALTY if in_loss else _FIX).format(functions=_functions_for(facts, rows)),
        rows=rows,
        edit=_take_lists(facts, runs, rows, in_loss),
        worth=LOW_FROM,
        confidence=0.85,
        count=rounds,
        places=Places.of([*locations_of(facts, lines), *heads]),
        evidence={"rounds_per_step": rounds, "operators_per_step": count, "operators_on_tensors_per_step": working},
    )


def _functions_for(facts: Facts, rows: Rows) -> str:
    """The functions on lists that do what these operators do, the commonest first."""
    mine = rows[_works_on_tensors(facts, rows)]
    codes, counts = np.unique(facts.trace.events.name_code[mine], return_counts=True)
    names = [facts.trace.names[code] for code in codes[np.argsort(-counts, kind="stable")].tolist()]
    return ", ".join(dict.fromkeys(f"`torch._foreach_{_name_on_lists(name)}`" for name in names))


def _name_on_lists(name: str) -> str:
    plain = base_name(name)
    if plain in {"linalg_vector_norm", "sum", "square"}:
        return "norm"
    return f"{plain}_" if name.endswith("_") else plain


def _find_loops(facts: Facts) -> Iterator[_Loop]:
    """Loops of the located step, each once, however often it ran."""
    seen = set[tuple[str, int]]()
    for lines in repeated_lines(facts, _MIN_ROUNDS):
        loop = _read_loop(facts, lines)
        if loop is not None and (loop.head.file, loop.head.line) not in seen:
            seen.add((loop.head.file, loop.head.line))
            yield loop


def _read_loop(facts: Facts, repeated: RepeatedLines) -> _Loop | None:
    """The loop of these lines, if its source and its operators show that it goes through a model and could
    take whole lists."""
    first, rows = repeated.first, repeated.operators(facts)
    body, called = body_and_called(facts, repeated.marks(facts), first)
    if not body or not goes_through_a_model([*body, *_lines_above(facts, first)]) or not _takes_lists(facts, rows):
        return None
    if not rounds_are_independent(body, called, may_go_through_a_model=True, may_write=True):
        return None
    rounds = _count_rounds(facts, rows[_works_on_tensors(facts, rows)])
    lines = order_sites(facts.lines.site[rows], spent_ns(facts, rows))
    return _Loop(head_of(body), lines, rows, rounds)


def _count_rounds(facts: Facts, working: Rows) -> int:
    """How often the rarest operator ran that still runs for each tensor: a quarter as often as the commonest. Marks do
    not tell, as the line of a generator is entered twice for each of its values."""
    counts = np.unique(facts.trace.events.name_code[working], return_counts=True)[1]
    return int(counts[counts * 4 > counts.max()].min())


def _lines_above(facts: Facts, mark: int) -> list[CallSite]:
    """The line around a mark: a comprehension's own line, which names what it goes through."""
    above = int(marks_around(facts)[mark])
    site = int(facts.trace.events.site[above]) if above >= 0 else -1
    own = int(facts.trace.events.site[mark])
    same = 0 <= site < len(facts.callsites) and 0 <= own < len(facts.callsites)
    if not same:
        return []
    outer, inner = facts.callsites[site], facts.callsites[own]
    return [outer] if (outer.file, outer.line) == (inner.file, inner.line) else []


def _takes_lists(facts: Facts, rows: Rows) -> bool:
    """Whether all of the operators could take lists of tensors, or work on single numbers."""
    if run_for_the_program(facts)[rows].any():
        return False
    single = _on_single_numbers(facts, rows)
    known = operators_of(facts.trace, _ON_LISTS, _PREPARING)[rows] | single
    return bool(known.all() and _works_on_tensors(facts, rows).any())


def _on_single_numbers(facts: Facts, rows: Rows) -> Bools:
    """The operators that take nothing but numbers and tensors of one number."""
    known: Bools = facts.trace.events.dims_code[rows] >= 0
    single: Bools = known & by_shapes(facts, rows, lambda shapes: not any(shapes))
    return single


def _works_on_tensors(facts: Facts, rows: Rows) -> Bools:
    """The operators that compute on more than a number."""
    working: Bools = ~operators_of(facts.trace, _PREPARING)[rows] & ~_on_single_numbers(facts, rows)
    return working


def _in_measured_steps(facts: Facts, loop: _Loop) -> list[_Run]:
    """Each run of the loop in the measured steps: its lines' operators with no others in between."""
    rows = program_operators(facts)
    mine = np.isin(facts.lines.site[rows], distinct(facts.lines.site[loop.rows]))
    ends = np.flatnonzero((np.diff(facts.step_of(rows)) != 0) | (np.diff(mine) != 0)) + 1
    per_round = len(loop.rows) / loop.rounds
    runs = [rows[part] for part in stretches(ends, len(rows), _MIN_ROUNDS) if mine[part.start]]
    return [_Run(run, max(1, round(len(run) / per_round))) for run in runs]


def _take_lists(facts: Facts, runs: list[_Run], rows: Rows, in_loss: bool) -> Edit:
    """Each run becomes a few calls with lists."""
    start, end = facts.trace.events.start_ns, facts.tree.end_ns
    works = _works_on_tensors(facts, rows)
    each = max(1.0, works.sum() / max(sum(run.rounds for run in runs), 1))
    joins = in_loss or operators_of(facts.trace, _AVERAGES)[rows[works]].all()
    kept = np.array([_kept_ns(facts, run, each if joins else 1.0) for run in runs], dtype=np.int64)
    spans = shrink_spans(start[[run.rows[0] for run in runs]], end[[run.rows[-1] for run in runs]], kept, _UNCERTAINTY)
    edits = [spans, _launch_together(facts, runs, rows)]
    if in_loss:
        edits.append(scale_beside_spans(facts, rows, 1 / each, _UNCERTAINTY))
    return combine(edits)


def _kept_ns(facts: Facts, run: _Run, joined: float) -> int:
    """What stays of a run on the host: what Python does besides calling operators, one round of what prepares and
    reads, and on a CPU the operators on tensors, one instead of those that are ``joined``."""
    rows, start, end = run.rows, facts.trace.events.start_ns, facts.tree.end_ns
    beside = (length_ns(facts, end[rows[:-1]], start[rows[1:]]) - PYTHON_NS).clip(min=0).sum()
    works, spent = _works_on_tensors(facts, rows), spent_ns(facts, rows)
    on_tensors = spent[works].sum() / (run.rounds if facts.device.present else joined)
    return int(beside + on_tensors + spent[~works].sum() / run.rounds)


def _launch_together(facts: Facts, runs: list[_Run], rows: Rows) -> Edit:
    """On the device one n-th of the kernels of n rounds stays, and what each takes beyond the shortest."""
    work = works_under(facts, facts.trace.mask_of(rows))
    if not work.size:
        return Edit()
    duration = facts.trace.events.duration_ns[work]
    least, rounds = int(duration.min()), sum(run.rounds for run in runs) / len(runs)
    return shrink_work(work, (duration - least * (1 - 1 / rounds)).astype(np.int64), _UNCERTAINTY)
