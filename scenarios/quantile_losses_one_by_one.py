"""A loss for each quantile, computed in a Python loop over the columns of a prediction, runs the same operators often.

A forecaster that predicts quantiles takes one column per quantile and computes its pinball loss. No quantile's loss
needs another's. Each `predicted[:, i]` also fills a tensor of the whole prediction's size with zeros in the backward
pass. With the quantiles in a dimension of their own, all losses are one expression.

Source: Koenker and Bassett, "Regression Quantiles", Econometrica 46 (1978) (the loss); PyTorch documentation,
"Broadcasting semantics" (how to say it without a loop).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unbatched-calls",)

STEPS = 24


@dataclass(frozen=True)
class State:
    model: nn.Module
    x: Tensor
    y: Tensor
    quantiles: list[float]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Linear(16, 49).to(device)
    x, y = torch.randn(6144, 16, device=device), torch.randn(6144, device=device)
    return State(model, x, y, [(i + 1) / 50 for i in range(49)])


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        predicted = state.model(state.x)
        losses = []
        for i, quantile in enumerate(state.quantiles):
            missed = state.y - predicted[:, i]
            losses.append(torch.maximum(quantile * missed, (quantile - 1) * missed).mean())  # expect: unbatched-calls
        loss = torch.stack(losses).sum()
        loss.backward()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    quantiles = torch.tensor(state.quantiles, device=state.x.device)
    for _ in range(STEPS):
        missed = state.y[:, None] - state.model(state.x)
        loss = torch.maximum(quantiles * missed, (quantiles - 1) * missed).mean(0).sum()
        loss.backward()
        yield loss.detach()
