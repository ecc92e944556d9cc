"""A plan of a training step's memory: the request to the planning process, and its answer.

They travel as JSON. All sizes are in bytes.
"""

from __future__ import annotations

from msgspec import Struct

PARAMETERS, GRADIENTS, OPTIMIZER_STATE = "parameters", "gradients", "optimizer state"
ACTIVATIONS, TEMPORARIES, WORKSPACE = "activations", "temporaries", "workspace"
BUFFERS, INPUTS = "buffers", "inputs"
CATEGORIES = (PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, TEMPORARIES, INPUTS, BUFFERS, WORKSPACE)

FORWARD, BACKWARD, OPTIMIZER_STEP = "forward", "backward", "optimizer step"

PRECISIONS = {
    "fp32": "all in float32",
    "bf16": "all in bfloat16: parameters, gradients and optimizer state too",
    "fp16": "all in float16: parameters, gradients and optimizer state too",
    "bf16-amp": "float32 parameters, operators under autocast to bfloat16",
    "fp16-amp": "float32 parameters, operators under autocast to float16",
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")

CUDA_CONTEXT_BYTES = 770_000_000
"""What a process holds on a GPU besides PyTorch's memory: the context and the libraries' kernels. An H100's
out-of-memory message said 3.04 GiB in use when PyTorch had 2.31 (CUDA 13)."""


class InputSpec(Struct, frozen=True):
    """One input of the model. The batch goes in front of dimension ``batch_at`` of ``shape``. ``name`` is empty for a
    positional input, ``dtype`` for the model's own type."""

    shape: tuple[int, ...]
    batch_at: int = 0
    dtype: str = ""
    name: str = ""


class PlanRequest(Struct, frozen=True):
    """The request to the planning process. ``fits_bytes`` is 0 if nobody asked what fits."""

    target: str
    batch: int
    inputs: tuple[InputSpec, ...] = ()
    optimizer: str = "adamw"
    precision: str = "fp32"
    device: str = "cuda"
    fits_bytes: int = 0
    inference: bool = False
    changes: bool = True


class Usage(Struct, frozen=True):
    """The peak of memory, ``when`` it occurs, and what it consists of. ``reserved_bytes`` is what PyTorch's allocator
    has taken from the device by then, 0 on a CPU."""

    peak_bytes: int
    when: str
    by_category: dict[str, int]
    by_phase: dict[str, int]
    reserved_bytes: int = 0

    def needed_bytes(self) -> int:
        """What the device must have, on a GPU including what the process holds besides PyTorch's memory."""
        return self.reserved_bytes + CUDA_CONTEXT_BYTES if self.reserved_bytes else self.peak_bytes


class Change(Struct, frozen=True):
    """A possible change. ``usage`` is the plan with it, None if ``refused`` says why there is none. ``computed`` means
    that sizes were computed, without another run of the operators; ``numerics`` that results change."""

    name: str
    usage: Usage | None
    refused: str = ""
    computed: bool = False
    numerics: bool = False


class MemoryPlan(Struct, frozen=True):
    """``largest_batch`` is None if nobody asked, 0 if not even one sample fits. ``seconds`` is the planning time
    without importing PyTorch."""

    target: str
    model: str
    parameters: int
    request: PlanRequest
    usage: Usage
    largest_batch: int | None = None
    largest: Usage | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class PlanAnswer(Struct, frozen=True):
    """A plan, or what is wrong with the request, or the traceback of the user's own code."""

    plan: MemoryPlan | None = None
    refused: str = ""
    traceback: str = ""
