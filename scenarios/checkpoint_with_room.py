"""Checkpointing blocks whose activations would fit into memory computes their forward pass twice.

``torch.utils.checkpoint`` keeps a block's input and recomputes the rest in the backward pass. That is worth its time if
memory is short. But it often stays in the code with a smaller batch, a smaller model or a larger GPU. Without it the
blocks run once, and free memory holds their activations.

Source: PyTorch documentation, torch.utils.checkpoint; Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear
Memory Cost", 2016.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

triggers = ("needless-checkpointing",)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(self.norm(x))


@dataclass(frozen=True)
class State:
    blocks: nn.ModuleList
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    width, tokens = (1024, 16384) if device == "cuda" else (128, 1024)
    blocks = nn.ModuleList(Block(width) for _ in range(6)).to(device)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01, fused=True)
    return State(blocks, optimizer, [torch.randn(tokens, width, device=device) for _ in range(2)] * 10)


def pitfall(state: State) -> Iterator[Tensor]:
    for tokens in state.batches:
        state.optimizer.zero_grad()
        x = tokens
        for block in state.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # expect: needless-checkpointing
        loss = x.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for tokens in state.batches:
        state.optimizer.zero_grad()
        x = tokens
        for block in state.blocks:
            x = block(x)
        loss = x.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
