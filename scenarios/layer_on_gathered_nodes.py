"""A layer on the two nodes of each edge multiplies every node as often as it has edges.

Message passing is written as the paper has it: take both ends of an edge, put them side by side, apply a linear layer.
There are many more edges than nodes. The layer over two parts side by side is the sum of a layer on each part. So the
halves of the weight can be applied to the nodes, and what they give is gathered and added.

Source: messages of graph networks, such as EdgeConv and interaction networks; GATv2 in PyTorch Geometric is written the
second way.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("layer-on-copied-rows",)


@dataclass(frozen=True)
class State:
    linear: nn.Linear
    source: Tensor
    target: Tensor
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    linear = nn.Linear(2 * 128, 64).to(device).requires_grad_(False)
    source, target = (torch.randint(0, 500, (16_000,), device=device) for _ in range(2))
    return State(linear, source, target, [torch.randn(500, 128, device=device) for _ in range(24)])


def pitfall(state: State) -> Iterator[Tensor]:
    for nodes in state.batches:
        edges = torch.cat([nodes[state.source], nodes[state.target]], dim=1)
        messages = state.linear(edges)  # expect: layer-on-copied-rows
        yield messages.relu().sum(1)


def fix(state: State) -> Iterator[Tensor]:
    left, right = state.linear.weight.chunk(2, dim=1)
    for nodes in state.batches:
        from_source, from_target = nodes @ left.T, nodes @ right.T + state.linear.bias
        messages = from_source[state.source] + from_target[state.target]
        yield messages.relu().sum(1)
