"""A layer of experts has so few tokens for each expert that it reads weights instead of computing, or computes slowly.

What it detects
Fused layers of experts (vLLM's, SGLang's, AITER's) that take 5 % of the step or more, in two cases. In the first each
expert has fewer tokens than the device needs operations for a byte, so that reading the weights takes longer than
multiplying with them. In the second they have more, and the kernel reaches less than a third of what the device could
do. Tokens are counted as if all experts were chosen equally often. It is an opportunity: a larger batch, other weights,
or another kernel.

Why is this bad?
An expert's weights are read once for all of its tokens. With a token or two for each, a layer of 64 experts reads
gigabytes for a few operations, and each further token would be nearly free. Sparse routing over many experts makes this
the usual case at small batches.

Example
    out = fused_moe(hidden, w1, w2, weights, ids)  # 16 tokens, 2 of 64 experts each: half a token for each expert

Use instead
    out = fused_moe(hidden, w1, w2, weights, ids)  # the tokens of more requests at once; weights in 8 bits

How the saving is estimated
In the first case with weights of half as many bytes, which need half the time to read (at most half of the kernel's
time); more tokens in a batch gain more, but are another step. In the second at half of what the device could do, as
fused layers reach with thousands of tokens (0.57 on an MI300X). The rates come from the data sheet.
"""

from __future__ import annotations

from profkit.derive.device.kernel_families import Family
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    known_roofline,
    nothing_below,
    rule,
)
from profkit.savings import Edit
from profkit.savings.roofline.below import LARGE_NS, SlowLaunches, at_share, gather, keeping
from profkit.savings.roofline.calls import BYTES_OF
from profkit.savings.roofline.launches import Point, Roofline
from profkit.savings.roofline.products import Experts

_SLOW, _REACHED = 0.34, 0.5
"""Shares of the possible, where arithmetic is the limit."""
_MIN_FRACTION = 0.05
"""Of the step: another batch or other weights are a decision about the whole model."""
_UNCERTAINTY = 0.4
"""Nobody knows from shapes how the tokens are spread over the experts."""
_NARROWED = 0.5
"""Of the bytes: 8 bits instead of 16."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def scattered_experts(facts: Facts) -> Suspicions:
    """A finding for each of the two cases."""
    roofline = known_roofline(facts)
    layers = [
        (point, point.demand)
        for point in roofline.points
        if isinstance(point.demand, Experts) and point.each_ns >= LARGE_NS
    ]
    few = gather(facts, roofline, [point for point, layer in layers if _is_scattered(roofline, point, layer)])
    if few is not None:
        edit = keeping(facts, few, lambda _: _NARROWED, _UNCERTAINTY)
        yield _report(few, edit, _few_tokens(few.worst), _MORE_TOKENS)
    unbound = [point for point, _ in layers if not point.is_memory_bound and point.of_possible < _SLOW]
    slow = gather(facts, roofline, unbound)
    if slow is not None:
        edit = at_share(facts, slow, lambda _: _REACHED, _UNCERTAINTY)
        yield _report(slow, edit, _slowly(slow), _OTHER_KERNEL)
    if few is None and slow is None:
        nothing_below(roofline, Family.EXPERTS)


_MORE_TOKENS = (
    "Let more tokens share the weights that are read: batch more requests, or keep a layer's experts on one "
    "rank for fewer, larger calls. Weights in 8 bits take half the time to read; compare the accuracy."
)
_OTHER_KERNEL = (
    "Tune the fused kernel for this shape (vLLM's `benchmark_moe.py --tune`, AITER's tuned tables). Or sort the "
    "tokens by expert and use a grouped product (`torch._grouped_mm`, CUTLASS, DeepGEMM)."
)


def _is_scattered(roofline: Roofline, point: Point, layer: Experts) -> bool:
    """Whether an expert has too few tokens to hide the reading of its weights: each byte of them gives as many
    operations as the expert has tokens times two, over the bytes of an element."""
    peak = roofline.rates.products.get(point.rate)
    if not peak or point.rate not in BYTES_OF:
        return False
    needed = peak / roofline.rates.bandwidth * BYTES_OF[point.rate] / 2
    return layer.tokens_per_expert < needed and point.is_memory_bound


def _few_tokens(point: Point) -> str:
    layer = point.demand
    assert isinstance(layer, Experts)
    return (
        f"{layer.tokens:,} tokens go to {layer.chosen} of {layer.experts} experts each, {layer.tokens_per_expert:.3g} "
        "for each expert: the weights are read for little arithmetic."
    )


def _slowly(slow: SlowLaunches) -> str:
    layer = slow.worst.demand
    assert isinstance(layer, Experts)
    return (
        f"with {layer.tokens_per_expert:,.0f} tokens for each of {layer.experts} experts they reach "
        f"{format_share(slow.share)} of what the device could do."
    )


def _report(slow: SlowLaunches, edit: Edit, why: str, fix: str) -> Suspicion:
    layer = slow.worst.demand
    assert isinstance(layer, Experts)
    return Suspicion(
        message=f"{format_count(slow.count, 'layer')} of experts a step, {format_time(slow.taken_ns)} in all: {why}"
        + slow.note,
        fix=fix,
        rows=slow.rows,
        edit=edit,
        worth=_MIN_FRACTION,
        confidence=0.6,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={
            "experts": layer.experts,
            "tokens": layer.tokens,
            "tokens_per_expert": round(layer.tokens_per_expert, 3),
            "share_of_possible": round(slow.share, 4),
        },
    )
