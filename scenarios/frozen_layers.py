"""A control: frozen layers whose parameters are still in the optimizer cost nothing, as they have no gradients.

``requires_grad_(False)`` keeps the backward pass out of the layers, so their ``.grad`` stays None, and the optimizer
skips parameters without a gradient: it makes no state and takes no step. Passing only the trained parameters states the
intent more clearly, but gains nothing.

It is not harmless if the layers have been trained before. With ``zero_grad(set_to_none=False)`` their gradients are
zeros instead of None, and momentum and weight decay keep moving the layers that seem frozen.

Both variants compute the same, so nothing is reported in either.

Source: PyTorch documentation, "Autograd mechanics", "Setting requires_grad".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ()
effect = "nothing"


@dataclass(frozen=True)
class State:
    body: nn.Module
    head: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU()).to(device)
    body.requires_grad_(False)
    head = nn.Linear(512, 10).to(device)
    batches = [(torch.randn(512, 512, device=device), torch.randint(10, (512,), device=device)) for _ in range(24)]
    return State(body, head, batches)


def train(state: State, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(state.head(state.body(x)), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.AdamW([*state.body.parameters(), *state.head.parameters()], fused=True)
    for x, y in state.batches:
        yield train(state, optimizer, x, y)


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.AdamW(state.head.parameters(), fused=True)
    for x, y in state.batches:
        yield train(state, optimizer, x, y)
