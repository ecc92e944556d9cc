"""Equal work is called again and again, although no call needs another's result.

What it detects
A line that runs four times or more in a step with the same operators and weights, where the calls could be a fourth as
many or fewer: an encoder that is called for each word, image or task, or a cell for each node of a tree. Where they
multiply matrices, sizes may differ, as those of sentences or graphs do, if half of a padded batch would be filled. So
are the rounds of a loop that multiply nothing: a loss for each class or quantile, a statistic for each group. What
calls take of each other is known from the memory that PyTorch's calls read and write in one step; if that was not
recorded, from the source of the loop's lines. Sums, extremes and lists of results do not count. Calls that form chains,
such as the nodes of a tree or many sequences, count by their longest chain: all of one level could be one call.

Not reported: a recurrence, whose calls each need the one before; calls with weights of their own (`looped-modules`); a
DataLoader's batches; what `tensor-element-loop` or `tensor-list-loop` reports; rounds whose results would together be
large; rounds that compute the same again (`redundant-recomputation`); and a loop that goes on by numbers which Python
reads from a result, unless its source shows that no round needs them. Calls with a backward pass between each two of
them accumulate gradients to save memory. If all of them together take little, nothing cuts a batch into parts, and the
source shows that the rounds are independent, they are reported as an opportunity. So are rounds without products that
each take a tensor of their own: on other data, sizes may differ.

Without training each step may be a call of the model. If that is on one sample, and the source of the loop's lines
shows that no round needs another's result, it is an opportunity: the price is that of sixteen calls that become one.
Where a DataLoader gives single samples, they have to be of one size.

Why is this bad?
Each call pays Python and the dispatcher for every operator, and so does its backward pass. A product of few rows mostly
reads its weights, which one call would read once. A part that is taken of a tensor (`x[:, i]`) fills a whole tensor
with zeros in the backward pass, for each call anew.

Example
    words = torch.stack([encoder(word) for word in sentence])

Use instead
    words = encoder(torch.stack(list(sentence)))

How the saving is estimated
What the operators compute and move stays. Dispatch, Python between the operators, and the reading of weights by
products of few rows are paid for as many calls as are left, likewise in the backward pass. Operators whose tensors
would leave the cache gain nothing; those that only move data take between the time of memory and all of their own.
Padding is computed too. Results beyond a megabyte may cost fresh pages. The range tells both ends. On a device kernels
that do not fill it take no longer for more rows until they would.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.families import operators_of
from profkit.patterns import Places, call_site, in_most_steps, program_operators
from profkit.patterns.calls import run_in_training
from profkit.patterns.flow.equal_calls import EqualCalls, loops_of
from profkit.patterns.flow.loops_apart import comes_from_a_loader, is_a_loop_of_its_own
from profkit.patterns.flow.sample_steps import sample_loop
from profkit.patterns.flow.unbatched import Unbatched, binding, find_unbatched, products_of, rows_of_each, rows_of_one
from profkit.patterns.loops.independent_rounds import head_of
from profkit.patterns.loops.located import marks_around, sites_between
from profkit.patterns.row_loops import RANDOM
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
    format_bytes,
    format_count,
    rule,
)
from profkit.rules.tensor_element_loop import tensor_element_loop
from profkit.rules.tensor_list_loop import tensor_list_loop
from profkit.savings import Edit, combine
from profkit.savings.one_call import REUSED_BYTES, fills_zeros, join_calls
from profkit.savings.replay import replay
from profkit.trace import Rows, among

_TOGETHER = 16
"""Samples in one call where each step has one: with more hardly anything of the price of calls is left to save."""
_UNSURE = 0.9
"""With an uncertainty of so much of the saving there may be next to none."""
_NORMALISING = frozenset(("batch_norm", "cudnn_batch_norm", "instance_norm", "native_batch_norm"))
_TRAINING = 5
"""The argument of ``aten::batch_norm`` that says whether the batch's own statistics are used."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES, Need.SHAPES)
def unbatched_calls(facts: Facts) -> Suspicions:
    """Look at each line that calls the same operators over and over; lines of one loop with as many calls are one
    finding, if one of them multiplies matrices. So are the calls of one line on other shapes."""
    found: dict[tuple[str, str, int, int, int, int], list[Unbatched]] = {}
    for one in find_unbatched(facts):
        site, around = call_site(facts, one.calls.site), int(marks_around(facts)[one.calls.marks[0]])
        if site is not None:
            key = site.file, site.function, len(one.calls.marks), one.left, around
            same = sum(
                other.calls.site == one.calls.site for k, group in found.items() if k[:-1] == key for other in group
            )
            found.setdefault((*key, same), []).append(one)
    by_line: dict[int, list[list[Unbatched]]] = {}
    beside: dict[tuple[str, str], list[list[Unbatched]]] = {}
    for (file, function, *_), together in found.items():
        together.sort(key=lambda one: not products_of(facts, one.calls).any())
        if products_of(facts, together[0].calls).any():
            by_line.setdefault(together[0].calls.site, []).append(together)
        else:
            beside.setdefault((file, function), []).append(together)
    for groups in by_line.values():
        known = _known(facts, groups)
        if known:
            site = call_site(facts, groups[0][0].calls.site)
            others = beside.pop((site.file, site.function), []) if site is not None else []
            yield _suspect(facts, known, [one for group in others for one in group])
    rounds = [group for groups in beside.values() for group in groups if _are_rounds(facts, group)]
    told = _told_elsewhere(facts) if rounds else np.zeros(0, dtype=np.int64)
    for group in rounds:
        known = _known(facts, [group])
        if known and not among(known[0][1], told).any():
            yield _suspect(facts, known, [])
    yield from _one_sample_a_step(facts)


def _one_sample_a_step(facts: Facts) -> Suspicions:
    """The model that each step calls on one sample, in a loop whose rounds do not need each other."""
    loop = sample_loop(facts)
    if loop is not None:
        yield Suspicion(
            message="Each step calls the model on one sample. The lines of the loop show that no round needs another's "
            f"result, so {_TOGETHER} samples could share a call.",
            fix=_LARGER_BATCHES if loop.has_loader else _SEVERAL_AT_A_TIME,
            rows=loop.rows,
            edit=join_calls(facts, loop.rows, 1 / _TOGETHER),
            worth=MEDIUM_FROM,
            kind=Kind.OPPORTUNITY,
            confidence=0.6,
            count=1,
            places=Places.of_sites((loop.call, loop.head)),
            evidence={"samples_per_call": 1, "samples_together": _TOGETHER},
        )


def _are_rounds(facts: Facts, group: list[Unbatched]) -> bool:
    computing = [(one.calls, binds) for one in group if (binds := binding(facts, one.calls)).any()]
    return bool(computing) and all(is_a_loop_of_its_own(facts, *one) for one in computing)


def _told_elsewhere(facts: Facts) -> Rows:
    """The operators of the loops on few numbers that have rules of their own, whose advice fits them better."""
    found = [one.rows for other in (tensor_element_loop, tensor_list_loop) for one in other.check(facts)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])


def _known(facts: Facts, groups: list[list[Unbatched]]) -> list[tuple[list[Unbatched], Rows]]:
    """The groups whose operators are found in the measured steps, with these; none if most steps lack them."""
    known = [(group, rows) for group in groups if (rows := _in_measured_steps(facts, group)).size]
    are_there = bool(known) and in_most_steps(facts, np.sort(np.concatenate([rows for _, rows in known])))
    return known if are_there else []


def _in_measured_steps(facts: Facts, group: list[Unbatched]) -> Rows:
    located = np.sort(np.concatenate([one.calls.operators.ravel() for one in group]))
    rows = repeated_in_measured(facts, located)
    return rows[among(rows, program_operators(facts))]


def _suspect(facts: Facts, known: list[tuple[list[Unbatched], Rows]], beside: list[Unbatched]) -> Suspicion:
    """``beside`` are the other calls of the same function that could be fewer: what they take is part of the price."""
    leading = [group[0] for group, _ in known]
    every = [one for group, _ in known for one in group]
    count, left = sum(len(one.calls.marks) for one in leading), sum(one.left for one in leading)
    rows = np.sort(np.concatenate([rows for _, rows in known]))
    changes = any(_normalises(facts, one.calls.operators[0]) for one in every)
    passes = any(one.own_passes for one in every)
    apart = not any(products_of(facts, one.calls).any() for one in every)
    apart &= not any(one.of_one_tensor for one in every) or any(one.of_a_list for one in every)
    edit = _join(facts, known, beside)
    is_unsure = changes or passes or apart or edit.uncertainty > _UNSURE
    return Suspicion(
        message=_say(facts, known, count, left) + _OWN_PASSES * passes,
        fix=_fix(facts, every, rows, left) + _APART * apart + _NORMALISED * changes,
        rows=rows,
        edit=edit,
        worth=MEDIUM_FROM,
        kind=Kind.OPPORTUNITY if changes or passes or apart else None,
        severity=Severity.MEDIUM if is_unsure and replay(facts, edit).fraction >= HIGH_FROM else None,
        confidence=0.85 if all(one.by_flow for one in leading) else 0.7,
        count=count,
        places=Places.of(_lines(facts, every)),
        evidence={
            "calls": count,
            "rows_per_call": max(rows_of_one(facts, one.calls) for one in leading),
            "calls_left": left,
            "operators_per_call": max(sum(one.calls.operators.shape[1] for one in group) for group, _ in known),
            "largest_result_at_once_bytes": _largest_at_once(facts, every),
        },
    )


def _largest_at_once(facts: Facts, every: list[Unbatched]) -> int:
    """The bytes of the largest result if all calls were one; 0 if the memory was not recorded."""
    return max(int(facts.allocated_bytes[one.calls.operators].sum(axis=0).max() // one.left) for one in every)


def _join(facts: Facts, known: list[tuple[list[Unbatched], Rows]], beside: list[Unbatched]) -> Edit:
    """Calls of one function become few together, with Python's work between their lines."""
    if not beside:
        return combine(
            [
                join_calls(facts, rows, group[0].left / len(group[0].calls.marks), group[0].calls.filled)
                for group, rows in known
            ]
        )
    every = [*(one for group, _ in known for one in group), *beside]
    rows = np.sort(np.concatenate([_in_measured_steps(facts, [one]) for one in every]))
    left = [one.left / len(one.calls.marks) for one in every]
    filled = min(one.calls.filled for one in every)
    return join_calls(facts, rows, float(np.average(left, weights=[one.calls.operators.size for one in every])), filled)


def _fix(facts: Facts, every: list[Unbatched], rows: Rows, left: int) -> str:
    at_once = _largest_at_once(facts, every)
    return (
        _how(facts, every, left)
        + _RAGGED * any(one.calls.is_ragged for one in every)
        + _OWN_WEIGHTS * any(one.have_weights for one in every)
        + _PARTS * fills_zeros(facts, rows)
        + _RANDOM * bool(operators_of(facts.trace, RANDOM)[rows].any())
        + (_LARGE.format(format_bytes(at_once)) if at_once > REUSED_BYTES else "")
    )


def _how(facts: Facts, every: list[Unbatched], left: int) -> str:
    """What to write instead of a loader's single samples, rounds with a backward pass of their own, gradients for each
    call, rounds without products, or calls."""
    if any(comes_from_a_loader(facts, one.calls) for one in every):
        return _LARGER_BATCHES
    if any(one.own_passes for one in every):
        return _JOINED + _INNER * any(_differentiates_inside(facts, one.calls) for one in every)
    if all(_differentiates_each(facts, one.calls) for one in every):
        return _EACH_GRADIENT
    if not any(products_of(facts, one.calls).any() for one in every):
        return _ROUNDS
    return _ONCE if left == 1 else _BY_LEVEL


def _differentiates_inside(facts: Facts, calls: EqualCalls) -> bool:
    """Whether gradients are computed between the first and the last operator of a call."""
    first, last = calls.operators[0][[0, -1]].tolist()
    return bool(facts.lines.backward[first:last].any())


def _differentiates_each(facts: Facts, calls: EqualCalls) -> bool:
    """Whether gradients are computed after most of the calls, before the next one."""
    start = facts.trace.events.start_ns
    passed = np.searchsorted(np.sort(start[facts.lines.backward]), start[calls.marks])
    return bool((np.diff(passed) > 0).sum() * 2 > len(calls.marks))


def _say(facts: Facts, known: list[tuple[list[Unbatched], Rows]], count: int, left: int) -> str:
    leading = [group[0].calls for group, _ in known]
    rows = sorted({rows_of_one(facts, calls) for calls in leading})
    sizes = sorted({size for calls in leading if calls.is_ragged for size in rows_of_each(facts, calls)})
    noun = "calls" if any(products_of(facts, calls).any() for calls in leading) else "rounds of a loop"
    equal = f"{count:,} {'equal ' * (len(known) == 1 and not sizes)}{noun} a step"
    most = "at most " if len(rows) > 1 else f"{sizes[0]:,} to " if len(sizes) > 1 else ""
    few = f", each on {most}{format_count(rows[-1], 'row')}," if rows[-1] else ""
    if left == 1:
        return f"{equal}{few} could be one: none needs another's result."
    return f"{equal}{few} could be {left:,}: no more of them need to follow one another."


_OWN_PASSES = " Each has a backward pass of its own, though all together take little memory."
_ROUNDS = (
    "Write the body once, for all rounds: what differs from round to round becomes a dimension of its own, by `stack`, "
    "`view` or `[:, None]`. Sums, means and extremes then take that dimension. `torch.vmap` adds it to a function that "
    "exists."
)
_PARTS = (
    " Part of the price is paid in the backward pass: it fills a whole tensor with zeros for each part that is taken. "
    "`unbind`, `split` or `chunk` before the loop, in place of `x[:, i]` in it, avoid that by themselves."
)
_APART = (
    " Each round takes a tensor of its own, here all of one size. If they differ in size on other data, they need "
    "padding and a mask."
)
_RANDOM = " Random numbers drawn for all at once are other numbers."
_LARGE = (
    " The largest result of all at once takes {}. It may leave the cache, and get fresh memory each time: the lower "
    "end of the price counts that. Several rounds at a time keep it small."
)
_JOINED = (
    "Put the inputs into one tensor (`torch.stack`, `torch.cat`) and call it once. Add up the losses and call "
    "`backward` once: the gradient of a sum is the sum of the gradients."
)
_INNER = (
    " Where each call computes gradients of its own first, as in an inner step, use `torch.func.vmap` over a function "
    "with `torch.func.grad`."
)
_ONCE = (
    "Put the inputs into one tensor (`torch.stack`, `torch.cat`, or the tensor that the loop takes apart) and call it "
    "once. What reduces over the rows of one call, such as a mean or a loss, needs them in a dimension of their own. "
    "`torch.vmap` adds one. If memory is short, take several at a time."
)
_LARGER_BATCHES = (
    "Give the DataLoader a larger `batch_size`: without training it changes no result. What the loop does with a "
    "result then takes a dimension for the samples: `(out.argmax(1) == label).sum()`, losses with `reduction='sum'`. "
    "It must not read single numbers by `item()` of each sample."
)
_SEVERAL_AT_A_TIME = (
    "Go through the samples several at a time, and call the model once for all of them. Pad those of unequal length to "
    "the longest of the call (`pad_sequence`) and give the model a mask. Samples sorted by length need little padding. "
    "Samples that come one by one, as from a camera, have to be computed one by one."
)
_RAGGED = (
    " They differ in size. Pad each to the largest of the batch (`pad_sequence`), and mask the padding in sums, means "
    "and attention; recurrent layers take `pack_padded_sequence`. Graphs can be put side by side into one instead, "
    "their nodes numbered on, as PyG's `Batch` does."
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


def _lines(facts: Facts, together: list[Unbatched]) -> Iterator[Location]:
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


def _normalises(facts: Facts, one: Rows) -> bool:
    """Whether a call takes statistics of its own rows."""
    return run_in_training(facts, one, _NORMALISING, _TRAINING)
