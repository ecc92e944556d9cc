"""One function is called on few rows, again and again, although no call needs another's result.

What it detects
A line that runs four times or more in a step with the same operators, weights and shapes, where the calls could be a
fourth as many or fewer: an encoder that is called for each word, image or task, or a cell for each node of a tree. What
calls take of each other is known from the memory that PyTorch's calls read and write in one step; if that was not
recorded, from the source of the loop's lines. Calls that form chains, such as the nodes of a tree or many sequences,
count by their longest chain: all of one level could be one call. Not reported: a recurrence, whose calls each need the
one before; calls with weights of their own (`looped-modules`); calls with a backward pass between each two of them,
which accumulate gradients to save memory; and a loop that goes on by numbers which Python reads from a result, unless
its source shows that no round needs them. Without training and without a DataLoader each step may be a call of the
model. If that is on one sample, and the source of the loop's lines shows that no round needs another's result, it is
an opportunity: the price is that of sixteen calls that become one.

Why is this bad?
Each call pays Python and the dispatcher for every operator, and so does its backward pass. A product of few rows mostly
reads its weights, which one call would read once.

Example
    words = torch.stack([encoder(word) for word in sentence])

Use instead
    words = encoder(torch.stack(list(sentence)))

How the saving is estimated
What the operators compute and move stays. Dispatch, Python between the operators, and the reading of weights by
products of few rows are paid for as many calls as are left, likewise in the backward pass. Operators whose tensors
would leave the cache gain nothing. On a device kernels that do
not fill it take no longer for more rows until they would.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import MATRIX, VIEW, base_name, operators_of
from profkit.patterns import Places, call_site, first_shape, in_most_steps, program_operators, shapes_of
from profkit.patterns.calls import run_in_training
from profkit.patterns.flow.data_flow import LocatedFlow, calls_around, located_flow, longest_chain, shared_inputs
from profkit.patterns.flow.equal_calls import EqualCalls, equal_calls, loops_of
from profkit.patterns.flow.sample_steps import sample_loop
from profkit.patterns.loops.independent_rounds import head_of, rounds_are_independent
from profkit.patterns.loops.located import body_and_called, lines_between, located_marks, marks_around, sites_between
from profkit.patterns.loops.loop_source import calls_independent_modules
from profkit.patterns.step_calls import repeated_in_measured
from profkit.rules.base import (
    HIGH_FROM,
    MEDIUM_FROM,
    CallSite,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    rule,
)
from profkit.savings import Edit, combine
from profkit.savings.one_call import join_calls
from profkit.savings.replay import replay
from profkit.trace import NONE, Bools, Int64s, Rows, among, distinct

_LEAST = 4
"""Calls, and how many times fewer they could be. Two or three views, towers or scales of one input are an
architecture; from four on it is a loop."""
_TOGETHER = 16
"""Samples in one call where each step has one: with more hardly anything of the price of calls is left to save."""
_MOST_LOOKED_AT = 100
"""Lines whose calls are followed, those with most operators first."""
_NORMALISING = frozenset(("batch_norm", "cudnn_batch_norm", "instance_norm", "native_batch_norm"))
_TRAINING = 5
"""The argument of ``aten::batch_norm`` that says whether the batch's own statistics are used."""
_WEIGHTED = frozenset(("addmm", "matmul", "mm", "mv"))
"""Products whose weights may stand on either side."""
_WITHOUT_WEIGHTS = frozenset(("dot", "vdot"))
"""Products of two vectors, which both are data."""


_ADDING_UP = frozenset(
    (
        *("add", "add_", "sub", "sub_", "rsub", "maximum", "minimum", "logaddexp", "cat", "stack"),
        *("clone", "copy_", "index_put_", "index_add_", "scatter_add_", "zero_", "fill_"),
    )
)
"""What may take results of earlier rounds only to go on with a sum, an extreme or a list of them."""


class _Unbatched(Struct, frozen=True):
    """The calls of one line, how many of them would be left, whether their data flow shows it, not their source, and
    whether each has weights of its own that the step has made."""

    calls: EqualCalls
    left: int
    by_flow: bool
    have_weights: bool = False


class _Numbers(Struct, frozen=True):
    """The numbers of PyTorch's calls, a row for each run of a line: those that multiply, those that need what they take
    of other runs, and the first and the last."""

    working: Int64s
    binding: Int64s
    spans: Int64s


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES, Need.SHAPES)
def unbatched_calls(facts: Facts) -> Suspicions:
    """Look at each line that calls the same operators over and over; lines of one loop with as many calls are one
    finding, if one of them multiplies matrices. So are the calls of one line on other shapes."""
    found: dict[tuple[str, str, int, int, int, int], list[_Unbatched]] = {}
    for one in _find(facts):
        site, around = call_site(facts, one.calls.site), int(marks_around(facts)[one.calls.marks[0]])
        if site is not None:
            key = site.file, site.function, len(one.calls.marks), one.left, around
            same = sum(
                other.calls.site == one.calls.site for k, group in found.items() if k[:-1] == key for other in group
            )
            found.setdefault((*key, same), []).append(one)
    by_line: dict[int, list[list[_Unbatched]]] = {}
    beside: dict[tuple[str, str], list[_Unbatched]] = {}
    for (file, function, *_), together in found.items():
        together.sort(key=lambda one: not _products(facts, one.calls).any())
        if _products(facts, together[0].calls).any():
            by_line.setdefault(together[0].calls.site, []).append(together)
        else:
            beside.setdefault((file, function), []).extend(together)
    for groups in by_line.values():
        known = [(group, rows) for group in groups if (rows := _in_measured_steps(facts, group)).size]
        if known and in_most_steps(facts, np.sort(np.concatenate([rows for _, rows in known]))):
            site = call_site(facts, groups[0][0].calls.site)
            yield _suspect(facts, known, beside.pop((site.file, site.function), []) if site is not None else [])
    yield from _one_sample_a_step(facts)


def _one_sample_a_step(facts: Facts) -> Suspicions:
    """The model that each step calls on one sample, in a loop whose rounds do not need each other."""
    loop = sample_loop(facts)
    if loop is not None:
        yield Suspicion(
            message="Each step calls the model on one sample. The lines of the loop show that no round needs another's "
            f"result, so {_TOGETHER} samples could share a call.",
            fix=_SEVERAL_AT_A_TIME,
            rows=loop.rows,
            edit=join_calls(facts, loop.rows, 1 / _TOGETHER),
            worth=MEDIUM_FROM,
            kind=Kind.OPPORTUNITY,
            confidence=0.6,
            count=1,
            places=Places.of_sites((loop.call, loop.head)),
            evidence={"samples_per_call": 1, "samples_together": _TOGETHER},
        )


def _in_measured_steps(facts: Facts, group: list[_Unbatched]) -> Rows:
    located = np.sort(np.concatenate([one.calls.operators.ravel() for one in group]))
    rows = repeated_in_measured(facts, located)
    return rows[among(rows, program_operators(facts))]


def _suspect(facts: Facts, known: list[tuple[list[_Unbatched], Rows]], beside: list[_Unbatched]) -> Suspicion:
    """``beside`` are the other calls of the same function that could be fewer: what they take is part of the price."""
    leading = [group[0] for group, _ in known]
    every = [one for group, _ in known for one in group]
    count, left = sum(len(one.calls.marks) for one in leading), sum(one.left for one in leading)
    each = sorted({_rows_of_one(facts, one.calls) for one in leading})
    changes = any(_normalises(facts, one.calls.operators[0]) for one in every)
    own = any(one.have_weights for one in every)
    edit = _join(facts, known, beside)
    return Suspicion(
        message=_say(count, left, each, len(leading)),
        fix=_fix(facts, leading, left) + _OWN_WEIGHTS * own + _NORMALISED * changes,
        rows=np.sort(np.concatenate([rows for _, rows in known])),
        edit=edit,
        worth=MEDIUM_FROM,
        kind=Kind.OPPORTUNITY if changes else None,
        severity=Severity.MEDIUM if changes and replay(facts, edit).fraction >= HIGH_FROM else None,
        confidence=0.85 if all(one.by_flow for one in leading) else 0.7,
        count=count,
        places=Places.of(_lines(facts, every)),
        evidence={
            "calls": count,
            "rows_per_call": each[-1],
            "calls_left": left,
            "operators_per_call": max(sum(one.calls.operators.shape[1] for one in group) for group, _ in known),
        },
    )


def _join(facts: Facts, known: list[tuple[list[_Unbatched], Rows]], beside: list[_Unbatched]) -> Edit:
    """Calls of one function become few together, with Python's work between their lines."""
    if not beside:
        return combine([join_calls(facts, rows, group[0].left / len(group[0].calls.marks)) for group, rows in known])
    every = [*(one for group, _ in known for one in group), *beside]
    rows = np.sort(np.concatenate([_in_measured_steps(facts, [one]) for one in every]))
    left = [one.left / len(one.calls.marks) for one in every]
    return join_calls(facts, rows, float(np.average(left, weights=[one.calls.operators.size for one in every])))


def _fix(facts: Facts, leading: list[_Unbatched], left: int) -> str:
    if all(_differentiates_each(facts, one.calls) for one in leading):
        return _EACH_GRADIENT
    return _ONCE if left == 1 else _BY_LEVEL


def _differentiates_each(facts: Facts, calls: EqualCalls) -> bool:
    """Whether gradients are computed after most of the calls, before the next one."""
    start = facts.trace.events.start_ns
    passed = np.searchsorted(np.sort(start[facts.lines.backward]), start[calls.marks])
    return bool((np.diff(passed) > 0).sum() * 2 > len(calls.marks))


def _say(count: int, left: int, rows: list[int], kinds: int) -> str:
    equal = "equal calls a step" if kinds == 1 else "calls a step"
    most = "at most " if len(rows) > 1 else ""
    few = f", each on {most}{format_count(rows[-1], 'row')}," if rows[-1] else ""
    if left == 1:
        return f"{count:,} {equal}{few} could be one: none needs another's result."
    return f"{count:,} {equal}{few} could be {left:,}: no more of them need to follow one another."


_ONCE = (
    "Put the inputs into one tensor (`torch.stack`, `torch.cat`, or the tensor that the loop takes apart) and call it "
    "once. What reduces over the rows of one call, such as a mean or a loss, needs them in a dimension of their own. "
    "`torch.vmap` adds one. If memory is short, take several at a time."
)
_SEVERAL_AT_A_TIME = (
    "Go through the samples several at a time, and call the model once for all of them. Pad those of unequal length to "
    "the longest of the call (`pad_sequence`) and give the model a mask. Samples sorted by length need little padding. "
    "Samples that come one by one, as from a camera, have to be computed one by one."
)
_BY_LEVEL = (
    "Collect what can be computed at the same time: all nodes of one level of a tree, or the same step of all "
    "sequences. Call it once for each level, on a batch (`torch.stack`, `index_select`)."
)
_EACH_GRADIENT = (
    "Compute the gradients of all calls at once: `torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))` over "
    "`torch.func.functional_call` gives one for each row. If memory is short, use its `chunk_size`."
)
_OWN_WEIGHTS = (
    " Here each call has weights of its own that the step has computed. Keep them in one tensor with a first dimension "
    "for the calls. Use `torch.func.vmap` over `torch.func.functional_call`, or `torch.bmm`."
)
_NORMALISED = (
    " Batch norm in training mode computes its statistics from the rows of one call. One call for all rows changes the "
    "numbers."
)


def _lines(facts: Facts, together: list[_Unbatched]) -> Iterator[Location]:
    """The lines of the calls, and the heads of their loops."""
    for one in together:
        if (site := call_site(facts, one.calls.site)) is not None:
            yield Location.of(site)
    for one in together:
        run = loops_of(facts, one.calls)[0]
        if len(run) > 1:
            yield Location.of(_head(facts, run))


def _head(facts: Facts, run: Rows) -> CallSite:
    return head_of(sites_between(facts, int(run[0]), int(run[-1])))


def _rows_of_one(facts: Facts, calls: EqualCalls) -> int:
    """The rows that the first product of a call multiplies; 0 if they are not known."""
    one = calls.operators[0]
    product = one[_products(facts, calls)][0]
    name, shape = base_name(facts.trace.name_of(int(product))), first_shape(shapes_of(facts, int(product)))
    if not shape:
        return 0
    return shape[0] if "conv" in name else math.prod(shape[:-1])


def _products(facts: Facts, calls: EqualCalls) -> Bools:
    """Which operators of a call multiply matrices."""
    products: Bools = operators_of(facts.trace, MATRIX)[calls.operators[0]]
    return products


def _normalises(facts: Facts, one: Rows) -> bool:
    """Whether a call takes statistics of its own rows."""
    return run_in_training(facts, one, _NORMALISING, _TRAINING)


def _find(facts: Facts) -> Iterator[_Unbatched]:
    """Those that share no operator; of nested ones those that leave out most."""
    flow, judged = located_flow(facts), list[tuple[float, _Unbatched]]()
    for calls in itertools.islice(equal_calls(facts, _LEAST), _MOST_LOOKED_AT):
        found = _judge_by_flow(facts, flow, calls) if flow is not None else None
        found = found or _judge_by_source(facts, calls)
        if found.left * _LEAST <= len(calls.marks):
            judged.append((calls.operators.size * (1 - found.left / len(calls.marks)), found))
    explained = np.zeros(len(facts.trace.events), dtype=bool)
    for _, found in sorted(judged, key=lambda one: -one[0]):
        if not explained[found.calls.operators].any():
            explained[found.calls.operators] = True
            yield found


def _judge_by_flow(facts: Facts, located: LocatedFlow, calls: EqualCalls) -> _Unbatched | None:
    """None if the data flow does not tell: it was not followed there, or goes on by numbers that Python reads. Behind
    the calls that were followed, the longest chain grows as in their second half: not at all if each call, or each of
    several sequences, begins anew."""
    number = calls_around(facts, located, calls.operators.ravel()).reshape(calls.operators.shape)
    products = _products(facts, calls)
    matters = products if products.any() else np.ones_like(products)
    known = (number[:, matters] >= 0).all(axis=1)
    if known.sum() < _LEAST or not located.is_known(int(number[known][:, matters].min()), int(number[known].max())):
        return None
    number, count = number[known], len(calls.marks)
    begun, over = number[:, matters].min(axis=1), number.max(axis=1)
    passes, passed = (np.searchsorted(located.flow.backward, at) for at in (begun, over))
    of_step = _have_weights_of_step(facts, located, calls, number, products, calls.marks[known])
    if (passes != passed).any() or of_step is None:
        return _Unbatched(calls, count, True)
    calls_of = _Numbers(number[:, matters], number[:, _binds(facts, calls)], np.stack([begun, over], axis=1))
    chain = _chains(located, calls_of, passes)
    by_numbers = chain * _LEAST > len(number) and bool(located.flow.reads)
    if by_numbers and _chains(located, calls_of, passes, may_follow=True) < chain:
        return None
    half = len(number) // 2
    followed = _Numbers(calls_of.working[:half], calls_of.binding[:half], calls_of.spans[:half])
    grown = chain - _chains(located, followed, passes[:half])
    left = chain + round(grown * (count - len(number)) / (len(number) - half))
    return _Unbatched(calls, max(1, left), True, of_step)


def _binds(facts: Facts, calls: EqualCalls) -> Bools:
    """Which operators of a call make more of what they take than a sum or a view."""
    binds: Bools = ~operators_of(facts.trace, _ADDING_UP, VIEW)[calls.operators[0]]
    return binds


def _chains(located: LocatedFlow, calls: _Numbers, passes: Int64s, may_follow: bool = False) -> int:
    """How many calls are left: between two backward passes as many as the longest chain is long."""
    left = 0
    for one in distinct(passes).tolist():
        rounds: list[list[int]] = calls.spans[passes == one].tolist()
        round_of = {call: turn for turn, (first, last) in enumerate(rounds) for call in range(first, last + 1)}
        works, binds = (frozenset(of[passes == one].ravel().tolist()) for of in (calls.working, calls.binding))
        left += longest_chain(located.flow, round_of, works, binds, may_follow_numbers=may_follow)
    return left


def _have_weights_of_step(
    facts: Facts, located: LocatedFlow, calls: EqualCalls, number: Int64s, products: Bools, marks: Rows
) -> bool | None:
    """False if each product takes the same weights in all calls, or nothing but what its own call has made; True if one
    takes weights that the step has made for it, as in an inner optimisation. None for weights that were there before:
    those of other modules, or other tensors. None, too, for what other lines of the same call of the function have
    made, as attention's keys: its weights are those of these lines."""
    names = [base_name(facts.trace.name_of(row)) for row in calls.operators[0][products].tolist()]
    flow, own, found = located.flow, [frozenset(mine) for mine in number.tolist()], False
    for name, column in zip(names, number[:, products].T.tolist(), strict=True):
        is_own = all(own[turn].issuperset(flow.takes[call]) for turn, call in enumerate(column))
        if name in _WITHOUT_WEIGHTS or is_own or any(shared_inputs(flow, column)[0 if name in _WEIGHTED else 1 :]):
            continue
        weights = [next(iter(flow.takes[call][1:2]), NONE) for call in column]
        if len({one for one in weights if one < 0}) > 1:
            return None
        if _are_made_inside(facts, located, weights, marks):
            return None
        found |= max(weights) >= 0
    return found


def _are_made_inside(facts: Facts, located: LocatedFlow, weights: list[int], marks: Rows) -> bool:
    """Whether each of these calls lies in the same call of a function as the marked line, each in another one."""
    around, made = marks_around(facts)[marks], located.marks[np.array(weights).clip(min=0)]
    if len(distinct(around)) < len(marks) or (around < 0).any() or min(weights) < 0:
        return False
    return bool(((made > around) & (made < facts.tree.stop[around])).all())


def _judge_by_source(facts: Facts, calls: EqualCalls) -> _Unbatched:
    """Where all calls lie in loops of one line without a backward pass, and its source shows that no round needs
    another."""
    start = facts.trace.events.start_ns
    nodes = np.sort(start[facts.lines.backward])
    marks, left = located_marks(facts), 0
    for run in loops_of(facts, calls):
        first, last = int(run[0]), int(run[-1])
        site = call_site(facts, calls.site)
        inside = marks[(marks >= first) & (marks < facts.tree.stop[last])]
        body, called = body_and_called(facts, inside, first)
        varies = site is None or calls_independent_modules(site.source, lines_between(facts, first, last))
        shown = len(run) >= _LEAST and not varies and rounds_are_independent(body, called)
        passes = np.searchsorted(nodes, [start[first], facts.tree.end_ns[last]])
        shown &= bool(passes[0] == passes[1])
        left += 1 if shown else len(run)
    return _Unbatched(calls, left, False)
