"""Every expert computes every token, and a mask keeps those that the router chose.

A mixture of experts is meant to compute little for many parameters. Written with a mask, as `mask * expert(x)`, all
experts compute all tokens, and all but one result in six is multiplied by zero. Picking each expert's tokens first
gives the same sum for a sixth of the work.

Source: https://github.com/eminorhan/mixture-of-experts/issues/1
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("zeroed-results",)
EXPERTS, WIDTH, TOKENS = 6, 64, 2048


@dataclass(frozen=True)
class State:
    experts: nn.ModuleList
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(EXPERTS)
    ]
    experts = nn.ModuleList(layers).to(device)
    batches = [
        (torch.randn(TOKENS, WIDTH, device=device), torch.randint(EXPERTS, (TOKENS,), device=device)) for _ in range(24)
    ]
    return State(experts, torch.optim.SGD(experts.parameters(), lr=0.01), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for x, chosen in state.batches:
        out = torch.zeros_like(x)
        for number, expert in enumerate(state.experts):
            mask = (chosen == number).float()
            out = out + mask[:, None] * expert(x)  # expect: zeroed-results
        yield learn(state, out)


def fix(state: State) -> Iterator[Tensor]:
    for x, chosen in state.batches:
        out = torch.zeros_like(x)
        for number, expert in enumerate(state.experts):
            rows = (chosen == number).nonzero().flatten()
            out = out.index_add(0, rows, expert(x[rows]))
        yield learn(state, out)


def learn(state: State, out: Tensor) -> Tensor:
    loss = out.square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
