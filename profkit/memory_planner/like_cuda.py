"""Making PyTorch behave on a CPU as on a GPU where memory depends on it.

Fake tensors of a device need a PyTorch built for that device, and a plan must not depend on that. So all tensors are
fake CPU tensors, and the differences that matter are registered for them: dropout keeps a mask of one byte per element,
attention is fused even with dropout, and autocast computes more operators in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FLOAT32_UNDER_AUTOCAST = (
    "acos",
    "asin",
    "cosh",
    "cumprod",
    "cumsum",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "nll_loss",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "prod",
    "reciprocal",
    "renorm",
    "rsqrt",
    "sinh",
    "sum",
    "tan",
    "softplus",
    "layer_norm",
    "group_norm",
    "norm.Scalar",
    "nuclear_norm",
    "cosine_similarity",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "binary_cross_entropy_with_logits",
    "dist",
    "pdist",
    "cdist",
    "softmax.int",
    "log_softmax.int",
)
"""The list of aten/src/ATen/autocast_mode.h, in the overloads that programs call."""
_NARROW = (torch.float16, torch.bfloat16)
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def choose_kernels_as_on_cuda() -> Any:
    """Change this process from now on. The kernels last only as long as the returned object."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch does not type it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # replacing PyTorch's own kernels is intended
        library.impl("dropout", _dropout, "AutogradCPU")
        library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")
        for name in _FLOAT32_UNDER_AUTOCAST:
            library.impl(name, _in_float32(name), "AutocastCPU")
    return library


def _dropout(data: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0:
        return data
    result: Tensor = torch.ops.aten.native_dropout(data, p, train)[0]
    return result


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Fused kernels need four dimensions and equal widths. Dropout costs them no memory."""
    learned_mask = attn_mask is not None and attn_mask.requires_grad
    if query.dim() != 4 or query.size(-1) != value.size(-1) or learned_mask:
        result: Tensor = torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]
        return result
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
    if enable_gqa and query.size(1) != key.size(1):
        key, value = (one.repeat_interleave(query.size(1) // one.size(1), 1) for one in (key, value))
    fused: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return fused


def _in_float32(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def widen(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in _NARROW else value

    def call(*arguments: Any, **settings: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operator(*map(widen, arguments), **settings)

    return call
