"""A dataset that lies in memory as tensors is read one sample at a time, and the samples are stacked again.

What it detects
Requests for a batch, in most steps, in which the main process picks 64 samples or more out of tensors one by one
(`select`, `index`, `slice`) and stacks them, if operators take a quarter of the time or more: nothing is read, decoded
or made in Python, so the samples could be picked all at once. Operators that compute on each sample may take half of
the time at most; `input-bound` tells those that take more. If the tensors' shapes are known, at least half of what
becomes a tensor must have been picked: an index that is read out of a tensor, and from which Python makes the sample,
does not count. The step has to get at least 3 % shorter. If each sample draws random numbers of its own, it is an
opportunity: a batch draws others.

Why is this bad?
Each pick is a call of Python, a view of its own and an entry in a list, for a few hundred bytes. One indexing operator
with the list of all indices copies the same bytes in one call, a hundred times faster. Workers would not make it
cheaper: they spread the calls, and add the transfer between processes.

Example
    loader = DataLoader(TensorDataset(images, labels), batch_size=256, shuffle=True)
    for x, y in loader:
        train_step(x, y)

Use instead
    for batch in torch.randperm(len(images)).split(256):
        train_step(images[batch], labels[batch])

How the saving is estimated
A batch that is picked at once moves the bytes that the stacking moves. So each request keeps the time of its copying
(the `cat` inside `stack`), and that of all other operators that work on each sample, less the cost of a call in this
program: they then work on the batch.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import in_most_steps, loader_places, named_operators, spent_ns
from profkit.patterns.requests import LEAST_PICKS, PICKS, main_requests, picked_one_by_one
from profkit.rules.base import (
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    rule,
)
from profkit.savings import call_ns, shrink
from profkit.trace import Category, Int64s, Rows, median

_MOST_NAMED = 3
_FREE = (
    "aten::item",
    "aten::lift_fresh",
    "aten::detach",
    "aten::detach_",
    "aten::empty",
    "aten::view",
    "aten::permute",
    "aten::unsqueeze",
    "aten::resolve_conj",
    "aten::resolve_neg",
)
"""These only make a view, or a Python number: a batch does not need them."""
_DRAWING = ("rand", "bernoulli", "normal", "uniform", "multinomial")
_UNCERTAINTY = 0.3
"""The bytes are read in one call instead of many small ones; the indices have to be made, too."""


class _Fetches(Struct, frozen=True):
    """Requests for a batch that pick and stack samples; for each its time, its picks, and the time of its stacking."""

    rows: Rows
    spent_ns: Int64s
    picks: Int64s
    stacking_ns: Int64s


class _Transforms(Struct, frozen=True):
    """What else is done to each sample: the time in each request, the operators' names, the costliest first, and
    whether some ``draw`` random numbers."""

    spent_ns: Int64s
    names: tuple[str, ...]
    draw: bool

    @property
    def advice(self) -> str:
        if not self.names:
            return ""
        named = ", ".join(f"`{name}`" for name in self.names[:_MOST_NAMED])
        return f" Apply what each sample goes through ({named}) to the whole batch, or once to all data."


@rule(Kind.FAULT, Need.WHOLE_STEP)
def per_sample_fetch(facts: Facts) -> Suspicions:
    """One finding: the line that makes the DataLoader, or the loop that asks for batches."""
    fetches = _fetches(facts)
    others = _transforms(facts, fetches.rows)
    if not in_most_steps(facts, fetches.rows):
        return
    picks = round(median(fetches.picks))
    yield Suspicion(
        message=f"Each batch takes {format_time(median(fetches.spent_ns))} to make: {format_count(picks, 'pick')} "
        f"from tensors in memory, one by one. {format_time(median(fetches.stacking_ns))} of that copies them "
        "together.",
        fix="Pick each batch at once: loop over `torch.randperm(n).split(batch_size)` and index the tensors with "
        "it. Or give the dataset a `__getitems__(indices)` that does so, and the loader a `collate_fn` that "
        "returns it unchanged." + others.advice,
        kind=Kind.OPPORTUNITY if others.draw else None,
        rows=fetches.rows,
        edit=shrink(fetches.rows, fetches.stacking_ns + others.spent_ns, _UNCERTAINTY),
        worth=MEDIUM_FROM,  # the fix is to rewrite the loop
        places=loader_places(facts, fetches.rows),
        evidence={
            "picks_per_batch": picks,
            "fetching_ns_per_batch": int(median(fetches.spent_ns)),
            "stacking_ns_per_batch": int(median(fetches.stacking_ns)),
        },
    )


def _transforms(facts: Facts, requests: Rows) -> _Transforms:
    """The operators that a request calls for each sample, neither to pick it nor to stack it."""
    events, tree = facts.trace.events, facts.tree
    request = tree.nearest_ancestor(facts.trace.mask_of(requests))
    called = np.flatnonzero(tree.outermost(events.category == Category.OPERATOR) & (request >= 0))
    called = called[~named_operators(facts, *PICKS, "aten::stack", *_FREE)[called]]
    codes, of_code = np.unique(events.name_code[called], return_inverse=True)
    often = np.bincount(of_code, minlength=len(codes)) >= LEAST_PICKS * len(requests)
    called, of_code = called[often[of_code]], of_code[often[of_code]]
    spent = np.maximum(spent_ns(facts, called) - call_ns(facts), 0)
    cost = np.bincount(of_code, spent, len(codes))
    names = tuple(facts.trace.names[codes[i]].removeprefix("aten::") for i in np.argsort(-cost) if often[i])
    kept = np.bincount(request[called], spent, len(events))[requests].astype(np.int64)
    return _Transforms(kept, names, any(name.startswith(_DRAWING) for name in names))


def _fetches(facts: Facts) -> _Fetches:
    """The requests of the main thread in the measured steps that pick samples one by one and stack them."""
    events, tree = facts.trace.events, facts.tree
    requests = main_requests(facts)
    rows = facts.measured_rows(requests)
    if not rows.size:
        raise CannotLook("the recorded steps ask no DataLoader for batches")
    request = tree.nearest_ancestor(requests)
    # A pick inside another operator is not the program's.
    called = tree.outermost(events.category == Category.OPERATOR) & (request >= 0)
    operators = np.flatnonzero(called & named_operators(facts, *PICKS, "aten::stack"))
    stacked = named_operators(facts, "aten::stack")[operators]
    size, picks, stacks = len(events), operators[~stacked], operators[stacked]
    inside = np.flatnonzero(named_operators(facts, "aten::cat") & tree.under(named_operators(facts, "aten::stack")))
    copies = inside[request[inside] >= 0] if inside.size else stacks
    rows = rows[picked_one_by_one(facts, rows) & (np.bincount(request[stacks], minlength=size)[rows] > 0)]
    return _Fetches(
        rows=rows,
        spent_ns=spent_ns(facts, rows),
        picks=np.bincount(request[picks], minlength=size)[rows],
        stacking_ns=np.bincount(request[copies], spent_ns(facts, copies), size)[rows].astype(np.int64),
    )
