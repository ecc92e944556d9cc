"""What collectives and types of elements are called: by c10d, its backends, their kernels and by PyTorch's releases."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from profkit.derive.device.communication import function_of

SEND_RECEIVE = "send_recv"
"""A message from one rank to another; the name of a kernel does not tell it from an all-to-all."""
EVEN = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
"""Collectives to which all ranks put in as many bytes; to others each may put in another number."""

_WORDS = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("dispatch", "all_to_all"),
    ("combine", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", SEND_RECEIVE),
    ("send", SEND_RECEIVE),
    ("recv", SEND_RECEIVE),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)
"""The first one that a name contains; ``crossdevicereduce`` is that of vLLM's and SGLang's own kernels. ``dispatch``
brings tokens to their experts' ranks, ``combine`` brings them back."""
_BYTES = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "longint": 8,
    "long": 8,
    "int": 4,
    "shortint": 2,
    "short": 2,
    "unsignedchar": 1,
    "signedchar": 1,
    "char": 1,
    "byte": 1,
    "bool": 1,
    "complexfloat": 8,
    "complexdouble": 16,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
    "float32": 4,
    "float16": 2,
    "float64": 8,
}
_OUTPUT_FIRST = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""``c10d::…`` of these has its outputs before its inputs."""


@lru_cache(maxsize=4096)
def operation_of(name: str) -> str:
    """``all_reduce`` for ``c10d::allreduce_``, ``nccl:all_reduce``, ``ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)``;
    empty where the name does not say."""
    word = function_of(name).split(":")[-1].lower().replace("_", "").replace(" ", "")
    return next((operation for part, operation in _WORDS if part in word), "")


def element_bytes(dtype: str) -> int | None:
    """How many bytes an element takes: ``Float``, ``c10::BFloat16``, ``long int``."""
    word = dtype.rpartition("::")[2].lower().replace(" ", "").replace("_", "")
    return 1 if word.startswith("float8") else _BYTES.get(word)


@lru_cache(maxsize=4096)
def elements_of(dims: str, operation: str, is_call: bool) -> int | None:
    """How many elements a rank puts in, by the recorded shapes of ``nccl:…`` and ``gloo:…``, or of a call of c10d,
    whose first arguments are its tensors. None if they are not told."""
    try:
        shapes = json.loads(dims)
    except ValueError:
        return None
    if not isinstance(shapes, list) or not shapes:
        return None
    if not is_call:
        return sum(filter(None, map(_count, shapes))) if all(isinstance(one, list) for one in shapes) else None
    at = 1 if operation in _OUTPUT_FIRST and len(shapes) > 1 else 0
    return _count(shapes[at]) if shapes[at] else None


@lru_cache(maxsize=4096)
def is_awaited(concrete: str) -> bool | None:
    """Whether a call of c10d returns when the collective is over, by its recorded values: since PyTorch 2.9 one of them
    is ``asyncOp``, before ``timeout``. None if they do not say."""
    try:
        values = json.loads(concrete)
    except ValueError:
        return None
    known = isinstance(values, list) and len(values) >= 2 and values[-2] in ("True", "False")
    return values[-2] == "False" if known else None


def _count(shape: Any) -> int:
    """The elements of a tensor of this shape, or of all in a list of shapes."""
    if not isinstance(shape, list):
        return 0
    if all(isinstance(size, int) for size in shape):
        product = 1
        for size in shape:
            product *= max(size, 0)
        return min(product, 2**62)
    return min(sum(map(_count, shape)), 2**62)
