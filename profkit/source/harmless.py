"""The functions and methods that change nothing, by their names: they only look, or make something new or a view.

The lists are PyTorch's and NumPy's. A name that ends in an underscore writes to a tensor.
"""

from __future__ import annotations

_METHODS = """
    abs all allclose amax amin any argmax argmin argsort astype bincount bmm bool ceil chunk clamp clip clone
    contiguous cos count_nonzero cpu cuda cumprod cumsum detach device diag dim div dot double elu eq exp expand
    expand_as flatten flip float floor gather ge gelu gt half index_select int isclose isfinite isinf isnan item
    items keys le leaky_relu log log10 log1p log2 log_softmax logical_and logical_not logical_or logsumexp long lt
    masked_fill masked_select matmul max maximum mean median min minimum mm mul named_parameters nanmean narrow ne
    nelement nonzero norm numel numpy parameters permute pow prod quantile ravel relu repeat reshape round rsqrt
    searchsorted select sigmoid sign silu sin size softmax softplus split sqrt square squeeze state_dict std sub
    sum t tanh to tolist topk transpose tril triu type type_as unbind unflatten unique unsqueeze values var view
    where"""
METHODS = frozenset(_METHODS.split())
"""Of tensors, arrays and containers. Some of them change a model (`half`, `to`)."""
_FUNCTIONS = """
    adaptive_avg_pool2d arange array as_tensor asarray autocast avg_pool2d binary_cross_entropy
    binary_cross_entropy_with_logits cat concat concatenate conv1d conv2d cosine_similarity cross_entropy einsum
    eye full full_like histc histogram hstack inference_mode interpolate kl_div l1_loss linear linspace max_pool2d
    mse_loss nll_loss no_grad normalize one_hot ones ones_like pad smooth_l1_loss spmm stack tensor trace vstack
    zeros zeros_like"""
HARMLESS = METHODS | frozenset(_FUNCTIONS.split())
"""With the functions of modules, whose names a program's own modules may also have (`linear`)."""
_BUILTINS = """
    abs all any bool dict enumerate float frozenset int isinstance len list max min range reversed round set sorted str
    sum tuple type zip"""
BUILTINS = frozenset(_BUILTINS.split())
COLLECTING = frozenset(("append", "extend", "add", "update", "insert"))
"""Methods that change a container: harmless on what the code made itself."""
