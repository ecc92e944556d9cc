"""The two forms of an experiment's case, as calls that can be timed: what the program does, and what it could do.

Only operators that `profkit.experiment` lists are ever looked up, and tensors are made only where they fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import torch
from torch import Tensor

from profkit.experiment import RUNNABLE_BINARY, RUNNABLE_PRODUCTS, RUNNABLE_UNARY, Case, Experiment

Call = Callable[[], object]
_MOST_BYTES = 1 << 30
_MOST_COUNT = 4096
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_COPIES = 4
"""Gradients, the optimizer's state or the results, and what a kernel packs, beside the tensors themselves."""


class CannotRun(Exception):
    """A case that is not run; the message says why."""


def forms_of(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """Both forms of one case, with random numbers; raises `CannotRun`."""
    makers = {"narrower-type": _narrower, "fused-attention": _attention, "fused-optimizer": _optimizer,
              "batched-products": _batched}  # fmt: skip
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


def _attention(experiment: Experiment, case: Case, device: str) -> tuple[Call, Call]:
    """The passes besides the softmax are scalings, which is what most programs have there; a mask takes no less."""
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
        # Fused kernels want four dimensions: batch, heads, length, width.
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
    """Each module has tensors of its own; in the batch they lie one after the other in one tensor."""
    operator, count = _operator(case), experiment.count
    together = [torch.stack(of_all) for of_all in zip(
        *(_tensors(case.shapes, case.dtype, device, times=count) for _ in range(count)), strict=True)]  # fmt: skip
    apart = [[tensor[i].clone() for tensor in together] for i in range(count)]
    calls = [_calling(operator, tensors, experiment.backward) for tensors in apart]

    def one_by_one() -> None:
        for call in calls:
            call()

    return one_by_one, _calling(_batched_operator(case), together, experiment.backward)


def _batched_operator(case: Case) -> Callable[..., Tensor]:
    """The operator for tensors with one dimension more in front."""
    if case.operator == "linear":
        def linear(data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            rows = data.flatten(1, -2) if data.dim() > 2 else data[:, None]
            columns = weight.transpose(1, 2)
            return torch.bmm(rows, columns) if bias is None else torch.baddbmm(bias[:, None], rows, columns)
        return linear  # fmt: skip
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
    """``arguments`` are those of ``conv2d``: stride, padding, dilation and groups stand fourth to seventh."""
    try:
        stride, padding, dilation, groups = (json.loads(value) for value in arguments[3:7])
    except ValueError as error:
        raise CannotRun("the convolution's stride and padding were not recorded") from error
    return lambda data, weight, bias=None: function(data, weight, bias, stride, padding, dilation, groups)


def _tensors(
    shapes: Sequence[Sequence[int]],
    dtype: str,
    device: str,
    times: int = 1,
    beside: Sequence[Sequence[int]] = (),
) -> list[Tensor]:
    """Random tensors of these shapes, ``times`` as often, with tensors of other shapes ``beside`` them: if they fit."""
    if any(size < 0 for shape in shapes for size in shape):
        raise CannotRun("the recorded shapes or types are not complete")
    elements = sum(math.prod(shape) for shape in (*shapes, *beside)) * times
    if elements * _DTYPES[dtype].itemsize * _COPIES > min(_MOST_BYTES, psutil.virtual_memory().available // 4):
        raise CannotRun("the recorded tensors would take more memory than an experiment may")
    return [torch.randn(tuple(shape), dtype=_DTYPES[dtype], device=device) for shape in shapes]


def _calling(function: Callable[..., Tensor], tensors: list[Tensor], backward: bool) -> Call:
    """The call, with the backward pass to all of its inputs where that is wanted."""
    if not backward:
        def forward() -> object:
            with torch.no_grad():
                return function(*tensors)
        return forward  # fmt: skip
    inputs = [tensor.detach().requires_grad_() for tensor in tensors]
    gradient = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), inputs, gradient, allow_unused=True)
