"""Each layer of a graph network computes the graph's normalisation for itself.

The weights of the edges depend only on the edges, which all layers share. Counting the neighbours of each node and
gathering the counts at both ends of each edge costs as much as the layer itself. One call before the layers does it for
all.

Source: PyTorch Geometric documentation, GCNConv (``cached``) and gcn_norm; a layer written by hand has no cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("redundant-recomputation",)

NODES, WIDTH = 2000, 8


@dataclass(frozen=True)
class State:
    layers: nn.ModuleList
    graphs: Tensor
    features: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)).to(device)
    graphs = torch.randint(0, NODES, (24, 2, 10_000), device=device)
    return State(layers, graphs, torch.randn(24, NODES, WIDTH, device=device))


def normalise(edges: Tensor) -> Tensor:
    source, target = edges
    degree = torch.ones(NODES, device=edges.device).index_add(0, target, torch.ones(len(target), device=edges.device))
    scale = degree.rsqrt()
    return scale[source] * scale[target]


def spread(x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    source, target = edges
    return x.index_add(0, target, x[source] * weight[:, None])


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.layers.parameters(), lr=1e-3)
    for edges, features in zip(state.graphs, state.features, strict=True):
        x = features
        for layer in state.layers:
            weight = normalise(edges)  # expect: redundant-recomputation
            x = spread(layer(x).relu(), edges, weight)
        loss = x.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.layers.parameters(), lr=1e-3)
    for edges, features in zip(state.graphs, state.features, strict=True):
        x = features
        weight = normalise(edges)
        for layer in state.layers:
            x = spread(layer(x).relu(), edges, weight)
        loss = x.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()
