"""Attention written out as two matrix products and a softmax stores the whole table of scores, several times over.

The three lines are the paper's formula, and most tutorials teach them. They store a score for each pair of positions,
then again after scaling, after the softmax and for the backward pass. Time and memory go into moving a table that grows
with the square of the length. ``scaled_dot_product_attention`` computes the same in blocks and never stores the
table.

Source: PyTorch tutorials, "Implementing High-Performance Transformers with Scaled Dot Product Attention (SDPA)".
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unfused-attention",)

HEADS = 4
LENGTH = 1024
WIDTH = 64


@dataclass(frozen=True)
class State:
    project: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    project = nn.Linear(WIDTH, 3 * WIDTH).to(device)
    optimizer = torch.optim.SGD(project.parameters(), lr=0.1, fused=True)
    return State(project, optimizer, [torch.randn(2, LENGTH, WIDTH, device=device) for _ in range(16)])


def pitfall(state: State) -> Iterator[Tensor]:
    for tokens in state.batches:
        state.optimizer.zero_grad()
        heads = state.project(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # expect: unfused-attention
        weights = torch.softmax(scores, dim=-1)
        mixed = weights @ value
        loss = nn.functional.mse_loss(mixed.transpose(1, 2).flatten(2), tokens)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for tokens in state.batches:
        state.optimizer.zero_grad()
        heads = state.project(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        loss = nn.functional.mse_loss(mixed.transpose(1, 2).flatten(2), tokens)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
