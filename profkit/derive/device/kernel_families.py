"""What a device's kernel does, by its name.

Graphs, compiled code and serving engines record few operators or none, so the name is all there is. It is that of a C++
function with its template's arguments, or what a library or a compiler builds from the shape of its work. The table
below is read from the top, and the first entry that a name holds decides: attention before the product that it is built
of, a layer of experts before both.

Sources: the kernels of PyTorch (``aten/src/ATen/native/cuda``), CUTLASS, cuBLAS, cuDNN and CUB as Kineto records them;
hipBLASLt and Tensile (``Cijk_``), Composable Kernel, MIOpen, AITER and rocPRIM in public traces of AMD's GPUs; FBGEMM's
in those of recommenders; vLLM's and SGLang's in their own; FlashInfer's (a namespace, not all of it attention),
bitsandbytes', Apex's and Mamba's in their sources. Inductor's names are read by `generated`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import cache, lru_cache

from msgspec import Struct

from profkit.derive.device.communication import is_communication
from profkit.derive.device.generated import GeneratedKernel, Kind, parse_generated

_MOST_CHARACTERS = 2_000
"""Of a name. Templates of templates grow longer, but say what they are before that."""


class Family(str, Enum):
    """What kernels do. The value is what reports call it."""

    COMMUNICATION = "communication"
    ATTENTION = "attention"
    EXPERTS = "layers of experts"
    RECURRENT = "recurrent layers"
    CONVOLUTION = "convolutions"
    PRODUCT = "matrix products"
    QUANTISATION = "changes of precision"
    EMBEDDING = "embeddings"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    LOSS = "losses"
    POOLING = "pooling and resizing"
    OPTIMIZER = "updates of lists of tensors"
    SORTING = "sorting, scanning, selecting"
    INDEXING = "gathering and scattering"
    RANDOM = "random numbers"
    FOURIER = "Fourier transforms"
    SPARSE = "sparse products"
    DECOMPOSITION = "decompositions"
    LAYOUT = "copies and changes of layout"
    REDUCTION = "reductions"
    ELEMENTWISE = "elementwise"
    OTHER = "not known by name"


_WORDS = (
    (
        Family.LAYOUT,
        (
            r"reshape_and_cache|concat_and_cache|store_kv|set_(?:mla_)?kv|kv_?cache_copy|AppendPagedKV|req_to_token|"
            r"transform_bias_rescale_qkv"
        ),
    ),
    (
        Family.ATTENTION,
        (
            r"[Aa]ttn|[Aa]ttention|[Ff]mha|[Ff]lash(?!infer)|sdpa|mha_|(?<![a-z])mla_|compute_dot_do_o|"
            r"convert_dq_to_16bits|(?:Batch|Single)(?:Decode|Prefill)With|MergeStates|sage_fwd|"
            r"_fwd_(?:grouped_)?kernel_stage[12]|(?<![a-z])pa_[bf]\w*_gqa"
        ),
    ),
    (
        Family.EXPERTS,
        (
            r"moe|expert|_matmul_ogs|_finalize_matmul_scatter|topk_?gating|grouped_?topk|bmm_\w*MxE|[Rr]outing|bitmatrix|"
            r"expandInputRows|dispatch_layout"
        ),
    ),
    (
        Family.RECURRENT,
        (
            r"lstm|LSTM|(?<![a-z])gru(?![a-z])|GRU|RNN|rnn(?![a-z])|selective_scan|_chunk_(?:scan|state)|_state_passing|"
            r"delta_rule|fused_recurrent"
        ),
    ),
    (
        Family.CONVOLUTION,
        (
            r"convolve|conv(?!ert)|Conv(?!ert)|scudnn|fprop|dgrad|wgrad|winograd|Winograd|implicit_gemm|ImplicitGemm|igemm_|"
            r"im2col|Im2d?2?Col|col2im|fft2d_|flip_filter|first_layer|cask_\w*cudnn|precompute_indices|"
            r"gfx9_f\dx\d_|vol2col|col2vol"
        ),
    ),
    (Family.SPARSE, r"spmm|SpMM|spgemm|cusparse|csrmv|csr2|coo2|CooToCsr|CsrToCoo"),
    (
        Family.NORMALISATION,
        (
            r"batch_?norm|BatchNorm|layer_?norm|LayerNorm|group_?norm|GroupNorm|rms_?norm|R[Mm][Ss]Norm|Rmsnorm|"
            r"instance_?norm|bn_(?:fw|bw)|ln_(?:fw|bw)|GammaBeta|RowwiseMoments|InternalGradients|FusedParams|"
            r"GradientCoefficient|weight_norm|cuComputeGradInput"
        ),
    ),
    (
        Family.EMBEDDING,
        (
            r"(?<!rotary_)embedding|Embedding|embs_kernel|linearize_index|bounds_check_indices|bucketize|jagged|recat_|"
            r"permute_(?:indices|2D|pooled|1D|embeddings)"
        ),
    ),
    (
        Family.PRODUCT,
        (
            r"(?<!fb)gemm|Gemm|GEMM|gemv|nvjet|Cijk_|xmma|cutlass(?:::Kernel|::device_kernel|::gemm|_\d)|splitK|epilogue::impl|"
            r"matmul|Matmul|_mm_kernel|(?<![a-z])bmm|dot_kernel|[Mm]arlin|wvSplitK|"
            r"wv_splitk|Cublas|machete|scaled_mm|lora_(?:shrink|expand)|(?<![a-z])[sb]gmv"
        ),
    ),
    (
        Family.QUANTISATION,
        r"quant|Quant|FP8|hfp8|cast_to_fp8|per_(?:token|channel|block)_cast|cast_back|float8|scaled_fp8",
    ),
    (Family.SOFTMAX, r"soft_?max|Soft[Mm]ax|SoftMin"),
    (
        Family.LOSS,
        r"nll_loss|NLL|cross_entropy|CrossEntropy|ctc_|kl_div|binary_cross|mse_(?:loss|kernel)|smooth_l1|huber|Criterion",
    ),
    (
        Family.POOLING,
        r"pool|Pool|upsample|Upsample|interpolat|grid_sampl|roi_|RoIAlign|nms_?[kK]ernel|reflection_pad|replication_pad",
    ),
    (Family.OPTIMIZER, r"multi_tensor_apply|MultiTensor|fused_?adam|FusedAdam|fused_?sgd|lamb_kernel|kOptimizer"),
    (
        Family.SORTING,
        (
            r"(?<![a-z])sort|Sort|radix|Radix|(?<![a-z])scan(?![a-z])|Scan|cum(?:sum|prod|max|min)|top_?k|TopK|DeviceSelect|"
            r"ReduceByKey|RunLength|unique|Unique|bitonic|histogram|Histogram|nonzero|write_indices|searchsorted|"
            r"[Pp]artition|find_long_segments|write_num_of_segments|compute_num_of_partial"
        ),
    ),
    (Family.RANDOM, r"distribution_|philox|random_|(?<![a-z])rand_|curand|bernoulli|multinomial|Sampling"),
    (Family.FOURIER, r"(?<![a-z])(?:vk|roc|cu)?fft|FFT|bluestein"),
    (
        Family.DECOMPOSITION,
        r"getrf|getri|potrf|potrs|geqrf|gesvd|syev|svd_|trsm|trsv|trtri|larfg|cusolver|magma|householder|ormtr",
    ),
    (
        Family.INDEXING,
        (
            r"index|Index|kv_indices|offsets_range|segment_(?:csr|coo)|gather|Gather|scatter|Scatter|take_|put_kernel|compute_grad_weight|coalesceValues|krn_partial|"
            r"segment_reduce"
        ),
    ),
    (
        Family.LAYOUT,
        (
            r"CatArray|copy|Copy|nchwTo|nhwcTo|NhwcTo|NchwTo|transpose|Transpose(?!Params)|permute|AddPadding|convertTensor|SubTensorOp|"
            r"(?<!masked_)fill|Fill|memset|memcpy|roll_cuda|flip_|(?<![a-z])pad_|triu|tril|split_with_sizes|unfold|"
            r"init_device_workspace|tensorTransform|to_dense"
        ),
    ),
    (Family.REDUCTION, r"reduc|Reduc|cdist|nrm2|_norm_kernel|sum_kernel|cleanup|mean_kernel|amax|argmax"),
    (
        Family.ELEMENTWISE,
        (
            r"[Ee]lementwise|[Pp]oint[Ww]ise|dropout|act_and_mul|silu|gelu|relu|swiglu|[Rr]otary|rope|Rope|[Aa]ctivation|"
            r"scalePackedTensor|scal_kernel|op_generic_tensor|Op\d?d?Tensor|axpy|add_kernel|mul_kernel|arange|linspace|"
            r"assert_async|[ao]\w\wTensor|transform_kernel|transform_config|"
            r"unary_transform|amp_update_scale|penalties_kernel|token_bitmask"
        ),
    ),
)
_OF_TEMPLATES = (
    (Family.ATTENTION, re.compile(r"attention")),
    (Family.CONVOLUTION, re.compile(r"convolution")),
)
"""What a template computes besides products. A pointwise kernel is named after the product whose result it takes."""
_OF_REDUCTIONS = (
    (Family.NORMALISATION, re.compile(r"norm|rsqrt")),
    (Family.SOFTMAX, re.compile(r"softmax")),
    (Family.LOSS, re.compile(r"nll_loss|cross_entropy")),
)
_ALTERNATIVE = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|\[[^]]*\]|[^|([])+")
"""What stands between the bars of a pattern that are outside all brackets."""
_UNCERTAIN = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|\[[^]]*\]|\\.|\w(?=[?*]))[?*]?")
"""What does not say which characters a text has at that place."""


class _Words(Struct, frozen=True):
    """What names of a family hold: each a text, and a pattern around it if the text alone is not enough. Most names
    lack the text, which is seen much sooner than that the pattern does not fit."""

    each: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pattern: str) -> _Words:
        words = _ALTERNATIVE.findall(pattern)
        certain = (max(_UNCERTAIN.sub("|", word).split("|"), key=len) for word in words)
        return cls(tuple((text, "" if text == word else word) for text, word in zip(certain, words, strict=True)))

    def search(self, name: str) -> bool:
        """Whether the name holds any of these."""
        return any(text in name and (not pattern or _compiled(pattern).search(name)) for text, pattern in self.each)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _table() -> tuple[tuple[Family, _Words], ...]:
    return tuple((family, _Words.of(pattern)) for family, pattern in _WORDS)


@lru_cache(1 << 14)
def family_of_kernel(name: str) -> Family:
    """The family of a kernel of this name, as recorded or mangled."""
    name = name[:_MOST_CHARACTERS]
    if is_communication(name):
        return Family.COMMUNICATION
    generated = parse_generated(name)
    return _first(_table(), name, Family.OTHER) if generated is None else _family_of_generated(generated)


def _family_of_generated(kernel: GeneratedKernel) -> Family:
    operators = " ".join(kernel.operators)
    if kernel.kind is Kind.TEMPLATE:
        return _first(_OF_TEMPLATES, operators, Family.PRODUCT)
    if kernel.kind in (Kind.REDUCTION, Kind.PERSISTENT):
        return _first(_OF_REDUCTIONS, operators, Family.REDUCTION)
    return {Kind.FOREACH: Family.OPTIMIZER, Kind.SCAN: Family.SORTING}.get(kernel.kind, Family.ELEMENTWISE)


def _first(table: Iterable[tuple[Family, _Words | re.Pattern[str]]], text: str, otherwise: Family) -> Family:
    return next((family for family, pattern in table if pattern.search(text)), otherwise)
