"""Attention runs in a kernel that is far slower than another that the same device has.

What it detects
Calls of `scaled_dot_product_attention`, or of FlashAttention itself, that fall back to single products (the math path),
to the memory-efficient kernels, or to general ones where the device's maker has faster ones: AOTriton's on an MI300X,
FlashAttention 2 on a Hopper. They count if they reach less than a quarter of what the device could do, and if the step
would be 3 % shorter with the faster kernel. Causal masks are counted as half of the work. It is an opportunity: another
kernel or library, and sums in another order.

Why is this bad?
The fused kernels differ by more than a factor of two, and PyTorch chooses by type, width of a head, mask and build. A
mask given as a tensor, float32, or a width that is no multiple of 8 rules out the fastest without a word. Heads of
other widths than 64 and 128 are padded, or leave too few registers for large tiles.

Example
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=causal)     # a tensor: no flash kernel takes it

Use instead
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)       # the mask is a flag
    y = flash_attn_interface.flash_attn_func(q, k, v, causal=True)    # FlashAttention 3 on a Hopper

How the saving is estimated
Each such attention takes what it would at the rate that its device's fast kernels reach on long sequences: 43 % of the
data sheet on a Hopper (FlashAttention 3: 430 TFLOP/s and more at 512 positions), 30 % on an MI300X, where AITER outruns
AOTriton by 18 to 62 %; elsewhere half, as FlashAttention 2 reaches on an A100 (Dao, 2023). Short ones are bound by
memory and reach half of its rate. Of the math path only the forward pass is priced.
"""

from __future__ import annotations

import re
from functools import partial

from profkit.derive.device.kernel_families import Family
from profkit.patterns.calls import times_of
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_share,
    format_time,
    known_roofline,
    nothing_below,
    rule,
)
from profkit.run.directory import Rates
from profkit.savings.roofline.attention import Heads, heads_of
from profkit.savings.roofline.below import LARGE_NS, at_share, gather, points_below
from profkit.savings.roofline.launches import Point, composites_of

_SLOW = 0.25
"""Of the possible. The fast kernels reach 0.37 to 0.43 with heads of 64 on an H100, forward and backward."""
_AOTRITON = re.compile(r"^(?:attn_fwd|bwd_kernel|attn_bwd|bwd_preprocess|tuned_attn)")
"""Names of AOTriton's kernels, which PyTorch brings for ROCm."""
_MATH = "aten::_scaled_dot_product_attention_math"
"""What `scaled_dot_product_attention` calls if no fused kernel takes its inputs."""
_EFFICIENT = re.compile(r"fmha_cutlass[FB]|mem_eff_attention|efficient_attention")
_FLASH2 = re.compile(r"flash_fwd|flash_bwd")
"""FlashAttention 2, also in PyTorch's own build. Those of version 3 are called ``flash::FlashAttnFwd`` and
``device_kernel``."""
_HOPPER = ("h100", "h200", "gh200")
_FAST_WIDTHS = (64, 128)
"""Of a head: all fused kernels have their best tiles for these."""
_SHORT = 512
"""Keys: with fewer a head is over before the pipelines are full."""
_MIN_FRACTION = 0.03
"""Of the step: nobody brings another library for less."""
_UNCERTAINTY = 0.4
"""The sources measured forward passes of long sequences."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES)
def slow_attention(facts: Facts) -> Suspicions:
    """One finding for all of them, at the line that spends most in them."""
    roofline = known_roofline(facts)
    found = points_below(roofline, (Family.ATTENTION,), partial(_is_slow, facts, roofline.rates))
    written_out = composites_of(facts, _MATH, "aten::scaled_dot_product_attention")
    found += [point for point in written_out if point.of_possible < _SLOW and point.each_ns >= LARGE_NS]
    slow = gather(facts, roofline, sorted(found, key=lambda point: -point.step_ns))
    if slow is None:
        return nothing_below(roofline, Family.ATTENTION)
    heads = heads_of(slow.worst.call)
    yield Suspicion(
        message=f"Attention runs {times_of(slow.count)} a step in {_kernel_of(facts, slow.worst)}, "
        f"{format_time(slow.taken_ns)} at {format_share(slow.share)} of what the device could do"
        + (f": {_why(heads)}." if heads is not None else ".")
        + slow.note,
        fix=_fix(facts, roofline.rates, slow.worst),
        rows=slow.rows,
        edit=at_share(facts, slow, partial(_reached, roofline.rates), _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.7,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={
            "attentions_per_step": slow.count,
            "share_of_possible": round(slow.share, 4),
            **({"head_width": heads.width, "keys": heads.keys} if heads is not None else {}),
        },
    )


def _is_slow(facts: Facts, rates: Rates, point: Point) -> bool:
    """Whether the device has a faster kernel for it."""
    if point.of_possible >= _SLOW or _reached(rates, point) < point.of_possible:
        return False
    names = _names(facts, point)
    slower = any(_AOTRITON.search(name) or _EFFICIENT.search(name) for name in names)
    return slower or (_is_hopper(rates) and _is_long(point) and any(_FLASH2.search(name) for name in names))


def _names(facts: Facts, point: Point) -> set[str]:
    return {facts.trace.name_of(row) for row in point.work.tolist()}


def _is_hopper(rates: Rates) -> bool:
    return any(word in rates.device.lower().split() for word in _HOPPER)


def _is_long(point: Point) -> bool:
    heads = heads_of(point.call)
    return heads is not None and heads.keys > _SHORT and not point.is_memory_bound


def _reached(rates: Rates, point: Point) -> float:
    """The share of the possible that the device's fast kernels reach."""
    if point.is_memory_bound:
        return 0.5
    if "mi300x" in rates.device.lower() or "mi325x" in rates.device.lower():
        return 0.3
    return 0.43 if _is_hopper(rates) else 0.5


def _is_written_out(facts: Facts, point: Point) -> bool:
    return facts.trace.name_of(int(point.rows[0])) == _MATH


def _kernel_of(facts: Facts, point: Point) -> str:
    names = _names(facts, point)
    if _is_written_out(facts, point):
        return "single products (the math path)"
    if any(_AOTRITON.search(name) for name in names):
        return "AOTriton's kernels"
    if any(_EFFICIENT.search(name) for name in names):
        return "the memory-efficient kernels"
    return "FlashAttention 2"


def _why(heads: Heads) -> str:
    """What stands out in its sizes."""
    sizes = f"{heads.batch * heads.heads:,} heads of {heads.width} over {heads.keys:,} keys"
    if heads.width not in _FAST_WIDTHS:
        return f"{sizes}, a width that is padded or leaves little room for tiles"
    if heads.keys <= _SHORT:
        return f"{sizes}, too short to fill the kernel's pipelines"
    return sizes


def _fix(facts: Facts, rates: Rates, point: Point) -> str:
    heads = heads_of(point.call)
    names = _names(facts, point)
    if _is_written_out(facts, point) or any(_EFFICIENT.search(name) for name in names):
        text = (
            "Give the flash kernel inputs it accepts: 16 bits, heads with a width that is a multiple of 8, and "
            "`is_causal=True` instead of a mask. `torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)` "
            "says why it refuses."
        )
    elif any(_AOTRITON.search(name) for name in names):
        text = "Call the maker's own kernels: AITER's `flash_attn_func`, or FlashAttention's build for ROCm (CK)."
    else:
        text = "Use FlashAttention 3, or cuDNN's (`sdpa_kernel(SDPBackend.CUDNN_ATTENTION)`)."
    if heads is not None and heads.keys <= _SHORT:
        text += " Pack short sequences into one call (`flash_attn_varlen_func`)."
    if heads is not None and heads.width not in _FAST_WIDTHS and rates.device:
        text += f" In a new model prefer heads of 128 or 64 to {heads.width}."
    return text
