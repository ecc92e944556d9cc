"""The kind of an operator's work, by its name.

Sources of the lists: PyTorch's ``native_functions.yaml`` (operators tagged ``pointwise``; those that return a view) and
the operator names that ``torch.profiler`` records.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from profkit.trace.events import Bools, Category, Trace

_PREFIX = "aten::"
_ARITHMETIC = """
    abs absolute add addcdiv addcmul bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min clip
    copysign div divide eq floor floor_divide fmax fmin fmod frac ge greater greater_equal gt heaviside isfinite isinf
    isnan isneginf isposinf le lerp less less_equal logical_and logical_not logical_or logical_xor lt masked_fill
    maximum minimum mul multiply nan_to_num ne neg negative nextafter not_equal positive reciprocal remainder round
    rsub sgn sign square sub subtract true_divide trunc where __and__ __or__ __xor__ __iand__ __ior__ __ixor__
    __lshift__ __rshift__ _to_copy to type_as"""
_FUNCTIONS = """
    acos acosh angle arccos arcsin arctan arctan2 arctanh asin asinh atan atan2 atanh cos cosh deg2rad digamma erf erfc
    erfinv exp exp2 expm1 hypot lgamma log log10 log1p log2 logaddexp logaddexp2 logit pow rad2deg rsqrt sigmoid sin
    sinc sinh sqrt tan tanh xlogy"""
_ACTIVATIONS = """
    celu dropout elu feature_dropout gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish
    native_dropout prelu relu relu6 rrelu selu silu softplus softshrink softsign threshold"""
_PRODUCTS = """
    addbmm addmm addmv baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution _convolution dot einsum gru gru_cell inner linear lstm lstm_cell matmul mm mv rnn_relu
    rnn_relu_cell rnn_tanh rnn_tanh_cell scaled_dot_product_attention tensordot vdot"""
_VIEWS = """
    alias as_strided broadcast_tensors broadcast_to chunk contiguous detach diagonal expand expand_as flatten
    lift_fresh movedim narrow numpy_T permute requires_grad reshape resolve_conj resolve_neg result_type select slice
    split split_with_sizes squeeze swapaxes swapdims t tensor_split transpose unbind unflatten unfold unsafe_chunk
    unsafe_split unsqueeze view view_as _reshape_alias"""

_DECOMPOSITIONS = """
    cholesky cholesky_inverse cholesky_solve linalg_cholesky linalg_cholesky_ex linalg_det linalg_eig linalg_eigh
    linalg_eigvals linalg_eigvalsh linalg_inv linalg_inv_ex linalg_ldl_factor linalg_lstsq linalg_lu linalg_lu_factor
    linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals
    logdet lstsq pinverse qr slogdet svd triangular_solve"""

ELEMENTWISE = frozenset((_ARITHMETIC + _FUNCTIONS + _ACTIVATIONS).split())
"""Each element of the result depends on the elements at its place; ``to`` if it changes the type."""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Of those, the ones for whose result a processor computes a series: they take it longer than moving the elements."""
MATRIX = frozenset(_PRODUCTS.split())
"""Matrix products and convolutions: their time is arithmetic, not memory."""
DECOMPOSITION = frozenset(_DECOMPOSITIONS.split())
"""Factorisations, inverses and solutions of linear systems."""
VIEW = frozenset(_VIEWS.split())
"""Operators that usually move no data (``reshape``, ``flatten`` and ``contiguous`` sometimes do)."""


@lru_cache(1 << 16)
def base_name(name: str) -> str:
    """``'aten::add_'`` → ``'add'``; empty for anything but PyTorch's own operators."""
    if not name.startswith(_PREFIX):
        return ""
    plain = name.removeprefix(_PREFIX)
    return plain if plain.endswith("__") else plain.removesuffix("_")


def writes_in_place(name: str) -> bool:
    """Whether an operator of this name, ``'aten::add_'`` or ``'add_'``, writes its result into its input."""
    return name.endswith("_") and not name.endswith("__")


def operators_of(trace: Trace, *families: frozenset[str]) -> Bools:
    """A mask of the operators whose name, in place or not, is in one of the families."""
    codes = _codes_by_base_name(trace.names)
    wanted = [code for family in families for name in family for code in codes.get(name, ())]
    mask: Bools = trace.with_codes(np.array(wanted, dtype=np.int32)) & (trace.events.category == Category.OPERATOR)
    return mask


@lru_cache(2)
def _codes_by_base_name(names: tuple[str, ...]) -> dict[str, list[int]]:
    codes: dict[str, list[int]] = {}
    for code, name in enumerate(names):
        codes.setdefault(base_name(name), []).append(code)
    return codes
