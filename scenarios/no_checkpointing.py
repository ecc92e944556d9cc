"""A deep stack of blocks keeps every intermediate result of the forward pass for the backward pass.

With long inputs that is most of a training step's memory: it grows with depth, while the parameters are small beside
it. Under ``torch.utils.checkpoint`` only a block's input is kept, and its forward pass runs again when the backward
pass reaches it. That costs time, so it pays if memory limits the batch.

Source: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016; PyTorch documentation,
torch.utils.checkpoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

triggers = ("activation-dominated-peak",)
effect = "memory"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(self.norm(x))


@dataclass(frozen=True)
class State:
    blocks: nn.ModuleList
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block(32) for _ in range(6)).to(device)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01, fused=True)
    return State(blocks, optimizer, [torch.randn(32, 2560, 32, device=device) for _ in range(2)] * 6)


def pitfall(state: State) -> Iterator[Tensor]:
    for tokens in state.batches:
        state.optimizer.zero_grad()
        x = tokens
        for block in state.blocks:
            x = block(x)  # expect: activation-dominated-peak
        loss = x.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for tokens in state.batches:
        state.optimizer.zero_grad()
        x = tokens
        for block in state.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = x.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
