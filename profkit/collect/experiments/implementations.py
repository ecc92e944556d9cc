"""Both forms of an experiment's case as calls to time: what the program does, and what it could do.

Only operators listed in `profkit.run.experiment` are ever looked up, and tensors are only made if they fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import torch
from torch import Tensor

from profkit.run.experiment import (
    RUNNABLE_BINARY,
    RUNNABLE_ON_IMAGES,
    RUNNABLE_PRODUCTS,
    RUNNABLE_UNARY,
    Case,
    Experiment,
)

Call = Callable[[], object]
_MOST_BYTES = 1 << 30
_MOST_COUNT = 4096
_MOST_THREADS = 1024
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_SPELT = {"True": "true", "False": "false"}
"""Truth values as the profiler writes them, and as JSON writes them."""
_COPIES = 4
"""The tensors, their gradients, the optimizer's state or the results, and a kernel's packed copy."""


class CannotRun(Exception):
    """A case cannot be run; the message says why."""


def forms_of(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """Both forms of one case, with random numbers; raises `CannotRun`."""
    makers = {
        "narrower-type": _narrower,
        "fused-attention": _attention,
        "fused-optimizer": _optimizer,
        "batched-products": _batched,
        "reduced-precision": _reduced,
        "channels-last": _channels_last,
        "cudnn-benchmark": _benchmarked,
        "fewer-threads": _on_fewer_threads,
    }
    if experiment.kind not in makers:
        raise CannotRun(f"no experiment is called {experiment.kind!r:.40}")
    if not case.shapes or case.dtype not in _DTYPES or not 1 <= experiment.count <= _MOST_COUNT:
        raise CannotRun("the recorded shapes or types are not complete")
    torch.manual_seed(0)
    return makers[experiment.kind](experiment, case, device)


def _narrower(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    if experiment.to not in _DTYPES:
        raise CannotRun(f"no type is called {experiment.to!r:.40}")
    operator = _operator(case)
    wide = _tensors(case.shapes, case.dtype, device)
    narrow = [tensor.to(_DTYPES[experiment.to]) for tensor in wide]
    return tuple(_calling(operator, tensors, experiment.backward) for tensors in (wide, narrow))  # type: ignore[return-value]  # two


def _reduced(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """Under autocast the call includes the casts of the parameters, as in a program. The data (the first tensor) is
    already narrow, like the result of an earlier operator."""
    operator = _operator(case)
    tensors = _tensors(case.shapes, "float32", device)
    as_it_is = _calling(operator, tensors, experiment.backward)
    if experiment.to == "tf32":
        return _with_setting(_allow_tf32, False, as_it_is), _with_setting(_allow_tf32, True, as_it_is)
    if experiment.to not in ("bfloat16", "float16"):
        raise CannotRun(f"no reduced precision is called {experiment.to!r:.40}")

    def cast(*arguments: Tensor) -> Tensor:
        with torch.autocast(device, _DTYPES[experiment.to]):
            return operator(*arguments)

    data, *parameters = tensors
    return as_it_is, _calling(cast, [data.to(_DTYPES[experiment.to]), *parameters], experiment.backward)


def _with_setting(apply: Callable[[Any], None], value: object, call: Call) -> Call:
    """A setting belongs to the process, so each form sets its own value in each call."""

    def set_and_call() -> object:
        apply(value)
        return call()

    return set_and_call


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def _set_benchmark(benchmark: bool) -> None:
    torch.backends.cudnn.benchmark = benchmark


def _channels_last(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """Images and weights already have the other layout, as after converting model and input."""
    if case.operator not in RUNNABLE_ON_IMAGES or len(case.shapes[0]) != 4:  # batch, channels, height, width
        raise CannotRun(f"{case.operator!r:.40} on these shapes has no channels to put last")
    operator = _operator(case)
    first = _tensors(case.shapes, case.dtype, device)
    last = [one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one for one in first]
    return tuple(_calling(operator, tensors, experiment.backward) for tensors in (first, last))  # type: ignore[return-value]  # two


def _benchmarked(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """cuDNN tries its kernels during the warm-up, which is not timed."""
    call = _calling(_operator(case), _tensors(case.shapes, case.dtype, device), experiment.backward)
    return _with_setting(_set_benchmark, False, call), _with_setting(_set_benchmark, True, call)


def _on_fewer_threads(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    if not experiment.to.isdecimal() or not 1 <= int(experiment.to) <= experiment.count <= _MOST_THREADS:
        raise CannotRun("the recorded number of threads cannot be run")
    call = _calling(_operator(case), _tensors(case.shapes, case.dtype, device), experiment.backward)
    counts = experiment.count, int(experiment.to)
    return _with_setting(torch.set_num_threads, counts[0], call), _with_setting(torch.set_num_threads, counts[1], call)


def _attention(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """The passes besides the softmax are scalings, as in most programs. A mask would take at least as long."""
    if len(case.shapes) != 3 or any(len(shape) != 3 for shape in case.shapes):
        raise CannotRun("the recorded shapes or types are not complete")
    batch, length, _ = case.shapes[0]
    table = (batch, length, case.shapes[1][1])
    tensors = _tensors(case.shapes, case.dtype, device, beside=(table,) * (experiment.count + 1))

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1)
        for _ in range(experiment.count - 1):
            scores = scores * 0.125
        return torch.softmax(scores, dim=-1) @ value

    def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # Fused kernels need four dimensions: batch, heads, length, width.
        return torch.nn.functional.scaled_dot_product_attention(query[None], key[None], value[None])

    return tuple(_calling(form, tensors, experiment.backward) for form in (written_out, fused))  # type: ignore[return-value]  # two


def _optimizer(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    if case.operator not in _OPTIMIZERS or experiment.to not in ("fused", "foreach"):
        raise CannotRun(f"no experiment knows the optimizer {case.operator!r:.40}")
    settings: dict[str, Any] = {"lr": 1e-4, **({"momentum": 0.9} if case.operator == "SGD" else {})}
    forms = []
    for how in ({"foreach": False}, {experiment.to: True}):
        parameters = [tensor.requires_grad_() for tensor in _tensors(case.shapes, case.dtype, device)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        forms.append(getattr(torch.optim, case.operator)(parameters, **settings, **how).step)
    return forms[0], forms[1]


def _batched(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """One by one, each module has its own tensors; batched, they are stacked."""
    operator, count = _operator(case), experiment.count
    together = [
        torch.stack(of_all)
        for of_all in zip(*(_tensors(case.shapes, case.dtype, device, times=count) for _ in range(count)), strict=True)
    ]
    apart = [[tensor[i].clone() for tensor in together] for i in range(count)]
    calls = [_calling(operator, tensors, experiment.backward) for tensors in apart]

    def one_by_one() -> None:
        for call in calls:
            call()

    return one_by_one, _calling(_batched_operator(case), together, experiment.backward)


def _batched_operator(case: Case) -> Callable[..., Tensor]:
    """The operator for tensors with an extra leading dimension."""
    if case.operator == "linear":

        def linear(data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            rows = data.flatten(1, -2) if data.dim() > 2 else data[:, None]
            columns = weight.transpose(1, 2)
            return torch.bmm(rows, columns) if bias is None else torch.baddbmm(bias[:, None], rows, columns)

        return linear
    if case.operator == "addmm":
        return lambda bias, left, right: torch.baddbmm(bias[:, None] if bias.dim() == 2 else bias, left, right)
    if case.operator in ("mm", "bmm", "matmul"):
        return torch.matmul
    if case.operator in RUNNABLE_PRODUCTS:
        raise CannotRun(f"no experiment knows {case.operator} with a batch dimension")
    return _operator(case)


def _operator(case: Case) -> Callable[..., Tensor]:
    name, functional = case.operator, torch.nn.functional
    if name in ("conv1d", "conv2d", "conv3d"):
        return _convolution(getattr(functional, name), case.arguments)
    if name in RUNNABLE_ON_IMAGES:
        return _on_images(name, case.arguments)
    if name in RUNNABLE_UNARY:
        found = getattr(functional if name in ("gelu", "silu") else torch, name)
        return lambda tensor, *_: found(tensor)
    if name in RUNNABLE_BINARY:
        found = getattr(torch, name)
        return lambda left, right=None, *_: found(left, left if right is None else right)
    if name in RUNNABLE_PRODUCTS:
        return getattr(functional if hasattr(functional, name) else torch, name)  # type: ignore[no-any-return]  # a function
    raise CannotRun(f"no experiment knows {name!r:.40}")


def _convolution(function: Callable[..., Tensor], arguments: Sequence[str]) -> Callable[..., Tensor]:
    """``arguments`` are those of ``conv2d``: fourth to seventh come stride, padding, dilation and groups."""
    try:
        stride, padding, dilation, groups = (json.loads(value) for value in arguments[3:7])
    except ValueError as error:
        raise CannotRun("the convolution's stride and padding were not recorded") from error
    return lambda data, weight, bias=None: function(data, weight, bias, stride, padding, dilation, groups)


def _on_images(name: str, arguments: Sequence[str]) -> Callable[..., Tensor]:
    """``arguments`` are the operator's: its settings come after the image, or after a normalisation's five tensors."""
    try:
        values = [json.loads(_SPELT.get(value, value)) for value in arguments if value]
    except ValueError as error:
        raise CannotRun(f"the settings of {name} were not recorded") from error
    if name == "batch_norm":

        def normalise(image: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
            return torch.batch_norm(image, weight, bias, mean.detach(), variance.detach().abs(), *values)

        return normalise
    found = getattr(torch.nn.functional, name)
    return lambda image: found(image, *values)


def _tensors(
    shapes: Sequence[Sequence[int]],
    dtype: str,
    device: str,
    times: int = 1,
    beside: Sequence[Sequence[int]] = (),
) -> list[Tensor]:
    """Random tensors of these shapes, if ``times`` as many, and those of the shapes ``beside``, fit into memory."""
    if any(size < 0 for shape in shapes for size in shape):
        raise CannotRun("the recorded shapes or types are not complete")
    elements = sum(math.prod(shape) for shape in (*shapes, *beside)) * times
    if elements * _DTYPES[dtype].itemsize * _COPIES > min(_MOST_BYTES, psutil.virtual_memory().available // 4):
        raise CannotRun("the recorded tensors would take more memory than an experiment may")
    return [torch.randn(tuple(shape), dtype=_DTYPES[dtype], device=device) for shape in shapes]


def _calling(function: Callable[..., Tensor], tensors: list[Tensor], backward: bool) -> Call:
    """The call, optionally with the ``backward`` pass to all of its inputs."""
    if not backward:

        def forward() -> object:
            with torch.no_grad():
                return function(*tensors)

        return forward
    inputs = [tensor.detach().requires_grad_() for tensor in tensors]
    gradient = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), inputs, gradient, allow_unused=True)
