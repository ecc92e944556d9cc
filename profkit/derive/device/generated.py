"""What a kernel written by `torch.compile` does, by its name.

Inductor calls its Triton kernels ``triton_<kind>_fused_<operators>_<number>`` (``TritonScheduling.define_kernel`` in
``_inductor/codegen/triton.py``). The kind is cut to three letters. The operators are ATen names in alphabetical order,
joined by the underscore that many names also contain. The number is the place in the generated file, so the same kernel
gets another number after any change.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache, lru_cache

from msgspec import Struct

from profkit.derive.families import VIEW


class Kind(str, Enum):
    """The categories of ``_inductor/wrapper_benchmark.py``. Its templates are products, attention included."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    PERSISTENT = "persistent reduction"
    TEMPLATE = "matrix product"
    FOREACH = "foreach"
    SCAN = "split scan"


_KINDS = {
    "poi": Kind.POINTWISE,
    "red": Kind.REDUCTION,
    "per": Kind.PERSISTENT,
    "tem": Kind.TEMPLATE,
    "for": Kind.FOREACH,
    "spl": Kind.SCAN,
}
_NAME = re.compile(r"triton_([a-z]{3})_fused_(?:(\w+)_)?\d+$")
_UNDERSCORED = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _embedding_bag _fft_r2c _fused_rms_norm _log_softmax
    _log_softmax_backward_data _low_memory_max_pool_offsets_to_indices _low_memory_max_pool_with_offsets
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _prelu_kernel
    _safe_softmax _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _softmax _softmax_backward_data _to_copy _unsafe_index _unsafe_index_put
    _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa"""
_OF_SEVERAL_WORDS = """
    adaptive_max_pool2d as_strided as_strided_scatter avg_pool2d avg_pool3d binary_cross_entropy
    binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor clamp_max clamp_min constant_pad_nd convert_element_type cudnn_batch_norm diag_embed
    diagonal_scatter embedding_dense empty_like empty_strided fill_diagonal floor_divide full_like grid_sampler_2d
    huber_loss index_add index_copy index_fill index_put index_reduce index_select inductor_lookup_seed
    inductor_random inductor_seeds leaky_relu linalg_cross linalg_vector_norm log_sigmoid log_sigmoid_forward
    logical_and logical_not logical_or logical_xor masked_fill masked_scatter max_pool2d_with_indices
    max_pool3d_with_indices moe_forward mse_loss nan_to_num native_batch_norm native_dropout native_group_norm
    native_layer_norm new_empty new_full new_ones new_zeros nll_loss nll_loss2d_forward nll_loss2d nll_loss_forward
    ones_like pixel_shuffle pixel_unshuffle prepare_softmax_online rand_like randint_like randn_like
    reflection_pad1d reflection_pad2d repeat_interleave replication_pad2d scalar_tensor scatter_add scatter_reduce
    select_scatter slice_scatter smooth_l1_loss soft_margin_loss split_with_sizes squeeze_dim std_mean true_divide
    upsample_bicubic2d upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d var_mean view_as_complex view_as_real view_copy zeros_like"""
"""ATen names with an underscore, of the operators for which Inductor writes kernels; from ``native_functions.yaml``."""


def _either(names: str) -> str:
    """A pattern for any of these names, the longest first."""
    return "|".join(sorted(names.split(), key=len, reverse=True))


@cache
def _operator() -> re.Pattern[str]:
    """One name. An in-place operator's ends in an underscore, and the next name may begin with one.

    It takes 8 ms to compile, and most recordings have no such kernel.
    """
    return re.compile(
        rf"(?:(?:{_either(_UNDERSCORED + _OF_SEVERAL_WORDS)})(?=_|$)|[a-z0-9]+)(?:_backward(?=_|$))?"
        rf"(?:_(?=_|$)(?!(?:{_either(_UNDERSCORED)})(?:_|$)))?"
    )


class GeneratedKernel(Struct, frozen=True):
    """``operators`` are the ATen names of what is fused in the kernel, as far as its name shows them."""

    kind: Kind
    operators: tuple[str, ...]

    def __str__(self) -> str:
        """``fused add, gelu (pointwise)``; views cost nothing and are named only if there is nothing else."""
        plain = tuple(dict.fromkeys(name.strip("_") for name in self.operators))
        working = tuple(name for name in plain if name not in VIEW and name not in _MOVE_NOTHING)
        names = ", ".join(working or plain)
        return f"fused {names} ({self.kind.value})" if names else f"generated kernel ({self.kind.value})"


_MOVE_NOTHING = ("unsafe_view", "select_backward", "slice_backward")
"""Besides `VIEW`: a view under another name, and work that a fused kernel does by leaving out zeros."""


@lru_cache(1 << 12)
def parse_generated(kernel_name: str) -> GeneratedKernel | None:
    """What the name of an Inductor kernel says; None for any other name."""
    match = _NAME.match(kernel_name)
    if match is None or match[1] not in _KINDS:
        return None
    return GeneratedKernel(_KINDS[match[1]], tuple(_operator().findall(match[2] or "")))
