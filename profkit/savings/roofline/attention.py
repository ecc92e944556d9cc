"""Attention in one operator: two products forward and five backward, half of them under a causal mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from profkit.derive.device.kernel_families import Family
from profkit.savings.roofline.calls import BYTES_OF, Call
from profkit.savings.roofline.demand import Demand


class Heads(Struct, frozen=True):
    """The sizes of an attention. ``keys`` is their length, ``pairs`` how many of its scores a causal mask leaves. With
    ``ends_together`` the last query sees the last key, as in FlashAttention's own functions."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    is_causal: bool
    ends_together: bool = False

    @property
    def pairs(self) -> int:
        """Query i attends to keys 0 to i, as PyTorch defines ``is_causal``."""
        if not self.is_causal:
            return self.queries * self.keys
        seen = min(self.queries, self.keys)
        if self.ends_together:
            return seen * (seen + 1) // 2 + seen * (self.keys - seen)
        return seen * (seen + 1) // 2 + (self.queries - seen) * self.keys


class _Form(Struct, frozen=True):
    """Where the queries, keys and values and the flag for a causal mask stand. ``heads_last``: the order of the sizes
    is batch, length, heads, width, as in FlashAttention's own functions."""

    first: int
    causal: int
    heads_last: bool = False
    is_backward: bool = False


_FORMS: Mapping[str, _Form] = {
    "aten::scaled_dot_product_attention": _Form(0, 5),
    "aten::_scaled_dot_product_flash_attention": _Form(0, 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Form(0, 4),
    "aten::_scaled_dot_product_efficient_attention": _Form(0, 6),
    "aten::_scaled_dot_product_cudnn_attention": _Form(0, 6),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Form(0, 5),
    "aten::_scaled_dot_product_flash_attention_backward": _Form(1, 11, is_backward=True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _Form(1, 7, is_backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": _Form(1, 11, is_backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Form(1, 14, is_backward=True),
    "flash_attn::_flash_attn_forward": _Form(0, 5, heads_last=True),
    "flash_attn::_flash_attn_backward": _Form(1, 11, heads_last=True, is_backward=True),
}
_NO_WINDOW = ("-1", "")
"""What FlashAttention takes beside the flag if each query sees all keys, and if nothing was recorded."""
_BACKWARD_PRODUCTS = 5
"""Instead of two: the scores are made again (Dao, FlashAttention-2, 2023, section 2.3)."""


def heads_of(call: Call) -> Heads | None:
    """The sizes of an attention that ``ATTENTION_MODELS`` names; None if they were not recorded or do not fit."""
    form = _FORMS.get(call.name)
    if form is None:
        return None
    query, key, value = (call.shape(form.first + at) for at in range(3))
    if min(len(query), len(key), len(value)) < 3:
        return None
    length, heads = (-3, -2) if form.heads_last else (-2, -3)
    if query[-1] != key[-1] or key[length] != value[length]:
        return None
    if form.heads_last and any(call.value(form.causal + at) not in _NO_WINDOW for at in (1, 2)):
        return None
    batch, is_causal = math.prod(query[:-3]), call.is_true(form.causal)
    sizes = (batch, query[heads], query[length], key[length], query[-1], value[-1])
    return Heads(*sizes, is_causal, ends_together=form.heads_last)


def _attention(form: _Form, call: Call) -> Demand | None:
    found = heads_of(call)
    if found is None:
        return None
    kind = call.float_type
    made = found.batch * found.heads * found.queries * found.value_width * BYTES_OF[kind]
    products = found.batch * found.heads * found.pairs
    at = range(form.first, form.first + 3)
    if form.is_backward:  # two products are as wide as the values, three as the keys
        operations = 2.0 * products * (2 * found.value_width + (_BACKWARD_PRODUCTS - 2) * found.width)
        return Demand(Family.ATTENTION, operations, call.size(0, *at) + made, call.size(*at), kind)
    operations = 2.0 * products * (found.width + found.value_width)
    masks = call.size(3) if not form.heads_last else 0.0
    return Demand(Family.ATTENTION, operations, call.size(*at) + masks, float(made), kind)


ATTENTION_MODELS: Mapping[str, Callable[[Call], Demand | None]] = {
    name: partial(_attention, form) for name, form in _FORMS.items()
}
