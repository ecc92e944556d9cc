"""An experiment: what a program does beside what it could do instead, small enough to run both.

A rule describes it by shapes and types, as far as the recording shows them. `profkit.collect.experiments.process` runs
it with random numbers on the machine of the recording. These are plain values that go through JSON.
"""

from __future__ import annotations

from msgspec import Struct

RUNNABLE_PRODUCTS = frozenset(
    ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention")
)
RUNNABLE_UNARY = frozenset(
    (
        "abs",
        "cos",
        "erf",
        "exp",
        "gelu",
        "log",
        "mean",
        "neg",
        "reciprocal",
        "relu",
        "rsqrt",
        "sigmoid",
        "silu",
        "sin",
        "sqrt",
        "square",
        "sum",
        "tanh",
    )
)
RUNNABLE_BINARY = frozenset(("add", "div", "maximum", "minimum", "mul", "sub"))
RUNNABLE_ON_IMAGES = frozenset(("adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "conv2d", "max_pool2d"))
"""Operators whose time depends on the memory order of an image's dimensions."""
RUNNABLE = RUNNABLE_PRODUCTS | RUNNABLE_UNARY | RUNNABLE_BINARY
"""The only operators that an experiment may name. A recording may come from anybody, and no other name is looked up."""


class Case(Struct, frozen=True):
    """One kind of call. ``operator`` is one of `RUNNABLE` or an optimizer's class. ``arguments`` are the recorded
    values of inputs that are not tensors. ``calls`` is the number per step; ``recorded_ns`` is what they took, which
    weighs the case against the others (0: unknown, so the measured time counts)."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    calls: float = 1.0
    arguments: tuple[str, ...] = ()
    recorded_ns: float = 0.0


class Experiment(Struct, frozen=True):
    """The cases as they are against the cases as they could be::

        narrower-type      each operator in its type        | in the type ``to``
        fused-attention    written out, ``count`` passes    | scaled_dot_product_attention (shapes: query, key, value)
        fused-optimizer    one parameter after the other    | ``to``: "fused" or "foreach" (shapes: the parameters)
        batched-products   ``count`` times one by one       | once with a batch dimension
        reduced-precision  each operator in float32         | under autocast to the type ``to``, or with "tf32" allowed
        channels-last      each operator as it is           | with images and weights in ``torch.channels_last``
        cudnn-benchmark    each operator as it is           | with the kernel that cuDNN finds by trying them
        fewer-threads      each operator on ``count`` threads | on ``to`` threads

    ``backward`` also runs the backward pass of each.
    """

    kind: str
    cases: tuple[Case, ...]
    to: str = ""
    count: int = 1
    backward: bool = False


class Measurement(Struct, frozen=True):
    """The share of the time that the second form needs: the median, and a range from the spread of the rounds.
    ``first_ns`` and ``second_ns`` are what the calls of one step took in each form. ``waited`` is the share of the time
    in which other programs had the processor, if that was most of it: both forms then ran in one thread, and waits are
    left out."""

    factor: float
    low: float
    high: float
    first_ns: int
    second_ns: int
    waited: float = 0.0


class Request(Struct, frozen=True):
    """A request to the measuring process. Only a machine with this device or processor may answer."""

    device: str
    processor: str
    threads: int
    experiments: tuple[Experiment, ...]


class Answer(Struct, frozen=True):
    """The answer to one experiment: a measurement, or why there is none."""

    measurement: Measurement | None = None
    failed: str = ""
