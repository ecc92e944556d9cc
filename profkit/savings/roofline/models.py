"""What a call demands, whichever operator it is."""

from __future__ import annotations

import re
from functools import lru_cache

from profkit.derive.device.generated import Kind, parse_generated
from profkit.derive.device.kernel_families import family_of_kernel
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


_PARTLY = re.compile(r"embedding|index|gather|slice|select|split|unbind|narrow|scatter|roll|pool|upsample")
"""Operators in the name of a generated kernel that read or write only some elements of a tensor."""


def has_model(name: str) -> bool:
    """Whether calls of an operator of this name are understood, if their shapes fit."""
    return (
        name in _MODELS
        or _passes_over_whole_tensors(name)
        or (not name.startswith("aten::") and "::" in name and _OF_EXPERTS.search(name) is not None)
    )


def _passes_over_whole_tensors(name: str) -> bool:
    """Whether it is a kernel that `torch.compile` wrote, no product, and each of its tensors is read or written
    whole."""
    kernel = parse_generated(name)
    return kernel is not None and kernel.kind is not Kind.TEMPLATE and not _PARTLY.search(name)


def _generated(call: Call) -> Demand:
    """Its arguments are all that it reads and writes."""
    return Demand(family_of_kernel(call.name), 0.0, call.all_bytes, 0.0, call.float_type)


def demand_of_call(call: Call) -> Demand | None:
    """The least that the call needs; None if there is no model for it or the shapes do not fit one."""
    if _passes_over_whole_tensors(call.name):
        return _generated(call) if call.all_bytes else None
    model = _MODELS.get(call.name, experts if has_model(call.name) else None)
    found = model(call) if model is not None else None
    if found is None or found.bytes <= 0 or (found.operations and found.type not in call.types):
        return None  # a rate for a type that nobody recorded would be a guess
    return found


@lru_cache(TEXTS)
def demand_of(name: str, dims: str, types: str, values: str) -> Demand | None:
    """The same from the texts that the profiler wrote."""
    call = read_call(name, dims, types, values)
    try:
        return None if call is None else demand_of_call(call)
    except (ArithmeticError, ValueError):  # sizes and settings that no tensor has
        return None
