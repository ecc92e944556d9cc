"""Making the optimizer that a plan's request names."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from profkit.memory_planner.factory import Refused

_FORMS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
_NOT_PLANNED = {"lbfgs": "it calls the model several times a step", "sparseadam": "it takes sparse gradients alone"}


def make_optimizer(name: str, parameters: Sequence[nn.Parameter], device: str) -> torch.optim.Optimizer:
    """``adamw``, ``sgd-momentum``, ``adam-fused``: a class of torch.optim with its defaults. On a GPU optimizers choose
    their ``foreach`` form by themselves; on fake tensors it has to be set."""
    kind, *suffixes = name.lower().split("-")
    classes = optimizer_classes()
    if kind not in classes:
        raise Refused(f"--optimizer {name}: choose from {', '.join(sorted(classes))}, some with -momentum or -fused")
    accepted = inspect.signature(classes[kind]).parameters
    settings: dict[str, Any] = {"lr": 1e-3}
    for suffix in suffixes:
        added = {"momentum": 0.9} if suffix == "momentum" else _FORMS.get(suffix)
        if added is None or not set(added) <= set(accepted):
            raise Refused(f"--optimizer {name}: {classes[kind].__name__} has no form {suffix!r}")
        settings |= added
    if device != "cpu" and "foreach" in accepted and not {"fused", "foreach"} & set(settings):
        settings["foreach"] = True
    return classes[kind](parameters, **settings)


def optimizer_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """The optimizers by lower-case name."""
    return {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
        and name.lower() not in _NOT_PLANNED
    }


def state_tensors(optimizer: torch.optim.Optimizer, device: str) -> tuple[list[Tensor], list[Tensor]]:
    """The optimizer's state on the device, and on the host: there lie the step counts, unless a kernel reads them."""
    read = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                kept[device != "cpu" and name == "step" and not read].append(value)
    return kept
