"""Calling the models of an ensemble one after another runs every small operation once for each model.

A list of models and a list comprehension is the obvious way to write it. With small models, starting an operation costs
more than running it, and the loop starts the same sequence for each model. ``torch.func.stack_module_state`` and
``vmap`` run all of them as one model with a batch of weights.

Source: PyTorch tutorials, "Model ensembling" (torch.func).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

triggers = ("looped-modules",)


@dataclass(frozen=True)
class State:
    models: list[nn.Module]
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    models: list[nn.Module] = [
        nn.Sequential(
            nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
        )
        .to(device)
        .requires_grad_(False)
        for _ in range(128)
    ]
    return State(models, [torch.randn(8, 32, device=device) for _ in range(40)])


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        scores = torch.stack([model(x) for model in state.models])  # expect: looped-modules
        yield scores.mean(0)


def fix(state: State) -> Iterator[Tensor]:
    parameters, buffers = stack_module_state(state.models)
    parameters = {name: value.detach() for name, value in parameters.items()}
    template = state.models[0]

    def call_one(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = functional_call(template, (dict(parameters), dict(buffers)), (x,))
        return output

    call_all = vmap(call_one, in_dims=(0, 0, None))
    for x in state.batches:
        scores = call_all(parameters, buffers, x)
        yield scores.mean(0)
