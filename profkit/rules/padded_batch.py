"""Padded positions of a batch are computed like data.

What it detects
Inputs of the first and the located step, as a DataLoader gives them or as they enter the model, whose rows end (or
begin) in one constant at different lengths: token ids, masks, features, padded in all rows beyond the longest one. The
constant hardly occurs within the rows; a tensor of two values counts as a mask only beside data of its shape. If each
batch is as long as its longest row, but rows use less than three quarters of it, that is an opportunity: rows of
similar length would have to be batched together. Some batches of later steps, while these are timed, tell how long the
longest row of a batch is. Fixed lengths without padding, borders of images, one-hot and sparse
features, columns of one category, and masks of ones or triangles are silent.

Why is this bad?
Layers compute all positions, also those that a mask hides afterwards. Work grows with the length, in attention's tables
of scores with its square: rows of 100 tokens padded to 512 cost five times as much, or more.

Example
    batch = tokenizer(texts, padding="max_length", max_length=512, return_tensors="pt")

Use instead
    batch = tokenizer(texts, padding="longest", truncation=True, max_length=512, return_tensors="pt")

How the saving is estimated
Operators of the model and its loss whose inputs have the padded length, also multiplied by the number of rows, take the
share of the positions that the longest row of a batch uses, on average over the batches that were seen, and so do their
backward nodes. Tables of scores between all positions take its square, and layers behind a convolution their share too.
A batch that was not seen may have a longer row than all others: that has a chance of one in so many batches, and half
of what such a row might use at most counts as used. None takes less than the program's cheapest operators, and the
launches of a device's work stay. For batches of similar rows the average row's length counts, a tenth longer.
"""

from __future__ import annotations

from math import hypot

import numpy as np

from profkit.patterns.padding import PaddedLength, computing_padding, padded_lengths, padding_places
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    Watch,
    format_share,
    rule,
    why_not_watched,
)
from profkit.savings import Edit, call_ns, computing_ns
from profkit.savings.pricing import take_less_with_backward
from profkit.trace import Float64s, Rows
from profkit.trace.statistics import quantile

_LEAST_REMOVED = 0.1
"""Share of the positions that no row uses; less is what rounding up to a multiple of 8 or 64 adds on purpose."""
_LEAST_SPREAD = 0.25
"""Share of padding below the longest row that is worth sorting for: uniform lengths from half the maximum have less."""
_SIMILAR = 1.1
"""Batches of similar rows are still about a tenth longer than their average row."""
_LEAST_BATCHED = 4
"""Rows in a batch, for sorting to bring anything."""
_CONFIDENCE = {"mask": 0.9, "ids": 0.85, "values": 0.7}
"""A mask says what is padding; zeros at the end of features may be meant."""
_UNCERTAINTY = 0.2
"""Shorter products use a device less well, and smaller tensors stay in the caches."""
_UNCERTAIN_SORTING = 0.5
"""How well sorting works depends on all lengths of the data, of which some batches were seen."""
_CHEAPEST = 0.05
"""The quantile of all kernels' times that stands for one with next to nothing to do."""
_NOT_WATCHED = (
    "no batch was seen for padding (run a program under profkit whose batches come from a DataLoader or enter a module)"
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def padded_batch(facts: Facts) -> Suspicions:
    """Look at each length to which batches are padded."""
    if facts.run.padding is None:
        raise CannotLook(why_not_watched(facts, Watch.PADDING, _NOT_WATCHED))
    for padded in padded_lengths(facts):
        if padded.longest <= (1 - _LEAST_REMOVED) * padded.length:
            yield from _removed(facts, padded)
        elif padded.rows >= _LEAST_BATCHED and padded.mean <= (1 - _LEAST_SPREAD) * padded.longest:
            yield from _sorted(facts, padded)


def _removed(facts: Facts, padded: PaddedLength) -> Suspicions:
    """The batch is longer than its longest row."""
    rows, kept = computing_padding(facts, padded, padded.used_share)
    if not rows.size:
        return
    more = "" if padded.mean > (1 - _LEAST_SPREAD) * padded.longest else _MORE
    yield Suspicion(
        message=f"Batches ({_names(padded)}) are padded to {padded.length:,} positions. The longest row of a batch "
        f"uses {padded.longest:,.0f} of them, the average row {padded.mean:,.0f}.",
        fix=_TRIM + more,
        rows=rows,
        edit=_shorter(facts, rows, kept, hypot(_UNCERTAINTY, padded.uncertainty)),
        worth=LOW_FROM,
        confidence=_CONFIDENCE[padded.kind],
        kind=Kind.OPPORTUNITY if padded.ndim > _OF_SEQUENCES or _is_compiled(facts) else None,
        count=1,
        places=padding_places(facts, padded),
        evidence=_evidence(padded),
    )


def _sorted(facts: Facts, padded: PaddedLength) -> Suspicions:
    """The batch is as long as its longest row, but most rows are much shorter."""
    left = min(1.0, _SIMILAR * padded.mean / padded.longest)
    rows, kept = computing_padding(facts, padded, lambda power: left**power)
    if not rows.size:
        return
    yield Suspicion(
        message=f"{format_share(1 - padded.mean / padded.longest)} of each batch is padding. Rows of {_names(padded)} "
        f"use {padded.mean:,.0f} positions on average but are padded to {padded.longest:,.0f}, the longest of "
        "their batch.",
        fix=_SORT,
        rows=rows,
        edit=_shorter(facts, rows, kept, _UNCERTAIN_SORTING),
        worth=LOW_FROM,
        confidence=_CONFIDENCE[padded.kind] - 0.1,
        kind=Kind.OPPORTUNITY,
        count=1,
        places=padding_places(facts, padded),
        evidence=_evidence(padded),
    )


_OF_SEQUENCES = 3
"""Dimensions of a batch of sequences with features; images have more."""
_TRIM = (
    "Pad each batch to its own longest row: `pad_sequence(rows, batch_first=True)` in the `collate_fn`, or "
    '`padding="longest"` for a tokenizer. Or cut the batch (`ids[:, :lengths.max()]`) with its mask and labels. For '
    "compiled code or CUDA graphs, round that length up to a few sizes."
)
_MORE = " Batching rows of similar length saves more."
_SORT = (
    "Batch rows of similar length: sort a shuffled stretch of the data by length and shuffle the batches. A "
    "`batch_sampler` does that, or `group_by_length=True` of Transformers' Trainer. Or pack several short rows into "
    "one. The order of the data changes."
)


def _names(padded: PaddedLength) -> str:
    return f"`{padded.names[0]}`" if padded.names else "the batch"


def _is_compiled(facts: Facts) -> bool:
    """Whether a fixed length may be there for the compiler."""
    return facts.run.compiled is not None and bool(facts.run.compiled.compilations)


def _evidence(padded: PaddedLength) -> dict[str, float | int | str]:
    return {
        "length": padded.length,
        "longest_row": round(padded.longest, 1),
        "average_row": round(padded.mean, 1),
        "used_share": round(padded.mean_share, 4),
        "batches_seen": padded.batches,
        "told_by": padded.kind,
    }


def _shorter(facts: Facts, rows: Rows, kept: Float64s, uncertainty: float) -> Edit:
    """The operators and their backward nodes take their share, but at least what the cheapest take."""
    computed = computing_ns(facts, rows).clip(min=1)
    duration = facts.trace.events.duration_ns[facts.launches.work]
    least = quantile(duration, _CHEAPEST) if duration.size else call_ns(facts)
    kept = np.maximum(kept, least / computed).clip(max=1)
    return take_less_with_backward(facts, rows, kept, uncertainty)
