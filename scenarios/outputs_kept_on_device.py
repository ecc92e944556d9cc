"""Keeping each batch's outputs until the end, for a number that could be added up on the way.

The outputs have no graph, so this is no leak of graphs; they are simply never released. The accuracy needs two counts,
but all scores of all batches stay in the memory of the device that computed them. A data set that is ten times as large
needs ten times as much.

Source: PyTorch documentation, FAQ, "My model reports 'cuda runtime error(2): out of memory'", the part on not holding
onto tensors that are not needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("growing-live-tensors",)
effect = "memory"


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 2000)).to(device).eval()
    batches = [(torch.randn(512, 128, device=device), torch.randint(2000, (512,), device=device)) for _ in range(24)]
    return State(model, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    outputs = []
    for x, _ in state.batches:
        with torch.inference_mode():
            scores = state.model(x)
        outputs.append(scores)  # expect: growing-live-tensors
        yield scores.mean()
    hits = sum((scores.argmax(dim=1) == y).sum() for scores, (_, y) in zip(outputs, state.batches, strict=True))
    yield hits / sum(len(y) for _, y in state.batches)


def fix(state: State) -> Iterator[Tensor]:
    hits = torch.zeros((), dtype=torch.long, device=state.batches[0][1].device)
    for x, y in state.batches:
        with torch.inference_mode():
            scores = state.model(x)
        hits += (scores.argmax(dim=1) == y).sum()
        yield scores.mean()
    yield hits / sum(len(y) for _, y in state.batches)
