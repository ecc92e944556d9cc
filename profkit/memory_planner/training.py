"""Training steps on tensors without data, which log every storage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from profkit.memory_planner.accounting import Timeline, timeline_of
from profkit.memory_planner.factory import Refused, Subject, as_arguments, loss_of, make_subject
from profkit.memory_planner.fake_models import OneDevice, constructing, plain_conversions, without_data
from profkit.memory_planner.optimizers import make_optimizer, state_tensors
from profkit.memory_planner.plan import (
    BACKWARD,
    BUFFERS,
    FORWARD,
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    OPTIMIZER_STEP,
    PARAMETERS,
    PlanRequest,
)
from profkit.memory_planner.storages import StorageLog, StorageWatch

_STEPS = 2
"""The first has no optimizer state until its end; the second is like all later ones."""
_MOST_MICRO_BATCHES = 2
"""The second finds gradients, like all later ones."""
_NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train. ``micro_batches`` divide the batch, ``prepare`` changes the model, and ``optimizer`` is the
    command line's name."""

    batch: int
    precision: str
    optimizer: str
    micro_batches: int = 1
    prepare: Callable[[nn.Module], None] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """``state_elements`` maps each storage of the optimizer's state to its number of elements."""

    timeline: Timeline
    model: str
    parameters: int
    state_elements: dict[int, int]
    notes: tuple[str, ...]


def train(factory: Callable[..., Any], request: PlanRequest, variant: Variant) -> Trained:
    """Run two training steps of the model that ``factory`` makes, or one forward pass for inference."""
    gc.collect()
    log = StorageLog()
    watch = StorageWatch(log, request.device)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, OneDevice(), plain_conversions():
        with constructing():
            subject = make_subject(factory, request.target, variant.batch, request.inputs)
        model = subject.model
        without_data(model, mode)
        if variant.prepare is not None:
            variant.prepare(model)
        if variant.precision in _NARROW:
            model.to(_NARROW[variant.precision])
        known = dict.fromkeys(watch.numbers_of(model.buffers()), BUFFERS)
        known |= dict.fromkeys(watch.numbers_of(model.parameters()), PARAMETERS)
        inputs = _inputs(subject, -(-variant.batch // variant.micro_batches), variant.precision)
        for number in watch.numbers_of(one for one in tree_leaves(inputs) if isinstance(one, Tensor)):
            known.setdefault(number, INPUTS)
        with watch:
            if request.inference:
                state: dict[int, int] = {}
                _infer(log, subject, inputs, variant)
            else:
                gradients, state = _train(log, watch, subject, inputs, variant, request.device)
                known |= dict.fromkeys(gradients, GRADIENTS)
        known |= {number: OPTIMIZER_STATE for number in state if number not in known}
        timeline = timeline_of(log, known, request.device)
    parameters = sum(one.numel() for one in model.parameters())
    return Trained(timeline, type(model).__name__, parameters, state, tuple(_notes(subject, request)))


def _notes(subject: Subject, request: PlanRequest) -> Iterator[str]:
    """What the plan does not know, and what it assumes."""
    if subject.loss is None and not request.inference:
        yield "without a loss the plan uses the model's own, else its output's mean: another may need more memory"
    if request.device == "cpu":
        return
    yield "memory that kernels take internally is not known (cuDNN's workspaces, the backward pass of attention)"
    if any(isinstance(module, nn.RNNBase) for module in subject.model.modules()):
        yield "recurrent layers are planned as on a CPU, without cuDNN's own reserve"


def _inputs(subject: Subject, samples: int, precision: str) -> Any:
    made = subject.make_inputs(samples)
    narrow = _NARROW.get(precision)
    if narrow is None:
        return made
    return tree_map_only(Tensor, lambda one: one.to(narrow) if one.is_floating_point() else one, made)


def _autocast(precision: str) -> AbstractContextManager[Any]:
    name = precision.removesuffix("-amp")
    return torch.autocast("cpu", _NARROW[name]) if name != precision else nullcontext()


def _infer(log: StorageLog, subject: Subject, inputs: Any, variant: Variant) -> None:
    subject.model.eval()
    arguments, keywords = as_arguments(inputs)
    log.begin(FORWARD)
    with torch.no_grad(), _autocast(variant.precision):
        subject.model(*arguments, **keywords)


def _train(
    log: StorageLog, watch: StorageWatch, subject: Subject, inputs: Any, variant: Variant, device: str
) -> tuple[set[int], dict[int, int]]:
    """The gradients' storages, and the optimizer state's with their numbers of elements."""
    model = subject.model.train()
    parameters = [one for one in model.parameters() if one.requires_grad]
    if not parameters:
        raise Refused("the model has no parameter that requires a gradient")
    optimizer = make_optimizer(variant.optimizer, parameters, device)
    gradients: set[int] = set()
    for _ in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(min(variant.micro_batches, _MOST_MICRO_BATCHES)):
            _forward_and_backward(log, subject, inputs, variant)
            gradients.update(watch.numbers_of(one.grad for one in parameters if one.grad is not None))
        log.begin(OPTIMIZER_STEP)
        optimizer.step()
    state, on_host = state_tensors(optimizer, device)
    for number in watch.numbers_of(on_host):
        log.sizes[number] = 0
    return gradients, {watch.number_of(one): one.numel() for one in state}


def _forward_and_backward(log: StorageLog, subject: Subject, inputs: Any, variant: Variant) -> None:
    arguments, keywords = as_arguments(inputs)
    log.begin(FORWARD)
    with _autocast(variant.precision):
        loss = loss_of(subject.model(*arguments, **keywords), subject.loss)
    log.begin(BACKWARD)
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
