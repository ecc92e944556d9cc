"""What a call demands, whichever operator it is."""

from __future__ import annotations

import re
from functools import lru_cache

from profkit.derive.operators.operators import TEXTS
from profkit.savings.roofline.attention import ATTENTION_MODELS
from profkit.savings.roofline.calls import Call, read_call
from profkit.savings.roofline.convolutions import CONVOLUTION_MODELS
from profkit.savings.roofline.demand import Demand
from profkit.savings.roofline.moving import MOVING_MODELS
from profkit.savings.roofline.products import PRODUCT_MODELS, experts

_MODELS = {**MOVING_MODELS, **PRODUCT_MODELS, **CONVOLUTION_MODELS, **ATTENTION_MODELS}
_OF_EXPERTS = re.compile(r"moe|experts", re.IGNORECASE)
"""Operators of engines: each has its own name for a fused layer, but all take the same tensors."""


def has_model(name: str) -> bool:
    """Whether calls of an operator of this name are understood, if their shapes fit."""
    return name in _MODELS or (not name.startswith("aten::") and "::" in name and _OF_EXPERTS.search(name) is not None)


def demand_of_call(call: Call) -> Demand | None:
    """The least that the call needs; None if there is no model for it or the shapes do not fit one."""
    model = _MODELS.get(call.name, experts if has_model(call.name) else None)
    found = model(call) if model is not None else None
    return found if found is not None and found.bytes > 0 else None


@lru_cache(TEXTS)
def demand_of(name: str, dims: str, types: str, values: str) -> Demand | None:
    """The same from the texts that the profiler wrote."""
    call = read_call(name, dims, types, values)
    return None if call is None else demand_of_call(call)
