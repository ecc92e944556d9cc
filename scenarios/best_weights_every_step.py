"""The best weights so far are kept by a deep copy in each step.

The loss of a batch falls below the best one again and again, above all at the beginning, and each time all weights are
copied. What is wanted is the model that an evaluation finds best, of which there is one in an epoch.

Source: PyTorch's documentation, "Saving and Loading Models" ("you must serialize best_model_state or use
best_model_state = deepcopy(model.state_dict())"), which is followed once per step.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

triggers = ("state-copied-in-step",)


@dataclass
class Best:
    loss: float = float("inf")
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]
    best: Best


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.Tanh())]
    model = nn.Sequential(*layers).to(device)
    batches = [torch.randn(16, 256, device=device) for _ in range(24)]
    return State(model, torch.optim.SGD(model.parameters(), lr=1e-2, fused=True), batches, Best())


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        loss = (state.model(batch) - batch).square().mean()
        loss.backward()
        state.optimizer.step()
        state.best.weights = copy.deepcopy(state.model.state_dict())  # expect: state-copied-in-step
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        loss = (state.model(batch) - batch).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
    state.best.weights = copy.deepcopy(state.model.state_dict())
