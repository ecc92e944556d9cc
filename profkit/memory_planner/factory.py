"""The user's model, its inputs and its loss, made with fake tensors, so that a constructor takes no memory."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from profkit.memory_planner.plan import InputSpec

_BATCH_ARGUMENTS = ("batch", "batch_size")


class Refused(Exception):
    """The requested plan cannot be made; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Subject:
    """``make_inputs`` takes the number of samples. ``loss`` takes the model's output; None means the output's mean."""

    model: nn.Module
    make_inputs: Callable[[int], Any]
    loss: Callable[[Any], Tensor] | None = None


def find_factory(target: str) -> Callable[..., Any]:
    """Find ``package.module:name`` or ``file.py:name``. Raises `Refused`, and whatever the module itself raises."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise Refused(f"{target}: give module:factory or file.py:factory")
    found: Any = _load_file(where) if where.endswith(".py") else _import(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise Refused(f"{target}: {where} has no {name!r}")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        raise Refused(f"{target}: this model exists already, with its memory; name a function or class that makes it")
    if not callable(found):
        raise Refused(f"{target}: not a function or a class, but of type {type(found).__name__}")
    return found  # type: ignore[no-any-return]  # callable


def _load_file(file: str) -> Any:
    path = Path(file)
    if not path.is_file():
        raise Refused(f"{file}: there is no such file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise Refused(f"{name}: there is no module {error.name!r}") from error
        raise


def make_subject(factory: Callable[..., Any], target: str, batch: int, inputs: tuple[InputSpec, ...]) -> Subject:
    """Call the factory. It returns a model, or a tuple: the model, its inputs (or a function that makes inputs for a
    number of samples), and optionally the loss as a function of the model's output."""
    wanted = [name for name in _BATCH_ARGUMENTS if name in _parameters(factory)]
    made = factory(**{wanted[0]: batch}) if wanted else factory()
    model, given, loss = (*made, None, None)[:3] if isinstance(made, tuple) else (made, None, None)
    if not isinstance(model, nn.Module):
        raise Refused(f"{target}: returns {type(made).__name__}, not a torch.nn.Module or a tuple that begins with one")
    if inputs:
        return Subject(model, lambda samples: _make_inputs(inputs, samples), loss)
    if given is None:
        raise Refused(f"{target}: the model's input is unknown: --input 3x224x224 gives one sample's shape")
    if callable(given):
        return Subject(model, given, loss)
    return Subject(model, lambda samples: _resize(given, samples), loss)


def _parameters(factory: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def _make_inputs(specs: tuple[InputSpec, ...], samples: int) -> Any:
    tensors = [
        torch.zeros(
            (*spec.shape[: spec.batch_at], samples, *spec.shape[spec.batch_at :]),
            dtype=getattr(torch, spec.dtype or "float32"),
        )
        for spec in specs
    ]
    return (
        [one for one, spec in zip(tensors, specs, strict=True) if not spec.name],
        {spec.name: one for one, spec in zip(tensors, specs, strict=True) if spec.name},
    )


def _resize(example: Any, samples: int) -> Any:
    """The example with another batch size. The first dimension is the batch."""
    return tree_map_only(Tensor, lambda one: one.new_zeros((samples, *one.shape[1:])) if one.dim() else one, example)


def as_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the model's call: a mapping by keyword, a tuple or list by position, else one argument."""
    if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[0], list) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), inputs[1]
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def loss_of(output: Any, loss: Callable[[Any], Tensor] | None) -> Tensor:
    """The factory's loss, the model's own, or the mean of the first floating-point tensor that the model returns."""
    if loss is not None:
        return loss(output)
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.dim() == 0:
        return own
    found = _first_floating(output)
    if found is None or not found.requires_grad:
        raise Refused("the model's output has no floating-point tensor that depends on a parameter with a gradient")
    return found.mean()


def _first_floating(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    if isinstance(output, Mapping):
        output = list(output.values())
    elif not isinstance(output, (tuple, list)):
        output = list(vars(output).values()) if hasattr(output, "__dict__") else []
    return next((found for one in output if (found := _first_floating(one)) is not None), None)
