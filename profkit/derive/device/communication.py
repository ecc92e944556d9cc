"""Which kernels exchange data with other devices, by their names.

Each library has its own. Where a name is common (``dispatch``, ``combine``, ``barrier_kernel``), its namespace or the
library's own types among its parameters decide. Names of collectives count in the function's own name alone: arguments
of templates hold those of operators, as ``triton_poi_fused_add_all_reduce_4`` does, which computes what is exchanged.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

_MOST_READ = 4_000
"""Characters. Names of CUTLASS have some thousand; what comes later are types."""
_UNNAMED = "(anonymous namespace)::"
_MANGLED = re.compile(r"_ZN?(?:K|L|St)*")
_LENGTH = re.compile(r"(\d{1,3})")
_GENERATED = re.compile(r"triton_[a-z]{2,12}_fused_")
"""Inductor's kernels: they are named after operators, and exchange nothing (``torch/_inductor/codegen/triton.py``)."""


class Library(Struct, frozen=True):
    """``types`` are names that stand anywhere in a kernel's name, ``functions`` those of the function itself, with its
    namespaces. ``source`` is where they are defined."""

    name: str
    source: str
    types: str = ""
    functions: str = ""


LIBRARIES = (
    Library("NCCL, RCCL", "src/device/common.h: ncclDevKernel_…, ncclSymk…, mscclKernel_…", r"nccl|rccl|\bmsccl"),
    Library("MSCCL++", "include/mscclpp/*_channel_device.hpp, src/ext/collectives", r"\bmscclpp::"),
    Library("UCC", "src/components/ec/cuda/kernel, tl/cuda", r"\bucc_(?:ec|eee|tl|tc)_", r"^UCC_REDUCE_"),
    Library(
        "NVSHMEM, rocSHMEM",
        "src/device/comm, src/host/stream",
        r"(?:nv|roc)shmem",
        r"\b(?:barrier|sync)(?:_all)?_on_stream_kernel",
    ),
    Library("oneCCL, Gloo, HCCL", "each library's namespace", r"\boneccl|\bccl::|\bgloo|\bhccl|\bxccl"),
    Library(
        "DeepEP",
        "csrc/kernels/legacy, deep_ep/include/deep_ep/impls",
        functions=r"\b(?:deep_)?ep::(?:legacy::)?(?:internode|intranode)(?:_ll)?::"
        r"|\bdeep_ep::.*\b(?:(?:hybrid_)?(?:dispatch|combine)|barrier|engram_fetch(?:_wait)?|pp_(?:send|recv))_impl$",
    ),
    Library("MORI", "src/ops/dispatch_combine", functions=r"\bEp(?:Dispatch|Combine)\w*(?:Node|Transfer|Sync|All)"),
    Library("pplx", "a2a-kernels/src", functions=r"\ba2a_(?:dispatch|combine)_(?:send|recv)"),
    Library(
        "TensorRT-LLM, FlashInfer",
        "cpp/tensorrt_llm/kernels/communicationKernels, include/flashinfer/comm",
        functions=r"\bmoeA2A(?:Dispatch|Combine)Kernel|NormLamport",
    ),
    Library("Transformer Engine", "common/comm_gemm_overlap/userbuffers", functions=r"\bk?userbuffers_"),
    Library("vLLM, SGLang, aiter", "csrc/custom_all_reduce.cuh", functions=r"cross_device_(?:reduce|store|gather)"),
    Library("QuickReduce", "csrc/quickreduce/quick_reduce.h", functions=r"\bquickreduce::"),
    Library(
        "PyTorch's symmetric memory",
        "torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
        functions=r"\bmultimem_|^(?:barrier|put_signal|wait_signal)_kernel$",
    ),
    Library(
        "collectives by any other name",
        "one-shot and two-shot kernels: each project has its own",
        functions=r"(?<![Ww]arp)(?<![Ww]arp_)(?<![Bb]lock)(?<![Bb]lock_)(?<![Ww]ave)(?<![Ww]ave_)"
        r"(?:(?:(?<![A-Za-z])all|All)_?(?:[Rr]educe|[Gg]ather|[Tt]o_?[Aa]ll)"
        r"|(?:(?<![A-Za-z])reduce|Reduce)_?[Ss]catter|(?:(?<![A-Za-z])send|Send)_?[Rr]ecv)",
    ),
)
"""A collective within a warp or a block is arithmetic; ``small_gather`` is no all-gather."""


_TYPES = re.compile("|".join(one.types for one in LIBRARIES if one.types))
_FUNCTIONS = re.compile("|".join(one.functions for one in LIBRARIES if one.functions))


@lru_cache(1 << 14)
def is_communication(kernel_name: str) -> bool:
    """Whether a kernel of this name exchanges data with other devices."""
    text = kernel_name[:_MOST_READ]
    if _GENERATED.match(text):
        return False
    return bool(_TYPES.search(text) or _FUNCTIONS.search(function_of(text)))


def function_of(kernel_name: str) -> str:
    """``vllm::cross_device_reduce_1stage`` for ``void vllm::cross_device_reduce_1stage<float, 8>(…)``, and for the same
    as a linker knows it: ``_ZN4vllm26cross_device_reduce_1stageI…``."""
    mangled = _MANGLED.match(kernel_name)
    if mangled:
        return "::".join(_parts_of(kernel_name, mangled.end()))
    return re.split(r"[(<]", kernel_name.removeprefix("void ").replace(_UNNAMED, ""), maxsplit=1)[0].strip()


def _parts_of(mangled: str, at: int) -> list[str]:
    """The names of a nested name in the Itanium C++ ABI: each has its length in front."""
    parts = []
    while length := _LENGTH.match(mangled, at):
        end = length.end() + int(length[1])
        parts.append(mangled[length.end() : end])
        at = end
    return [part for part in parts if not part.startswith("_GLOBAL__N_")]
