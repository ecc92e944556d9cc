"""The programs whose overhead is measured, small ones first: functions that train one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

Step = Callable[[], Tensor]


def programs(device: str) -> Iterator[tuple[str, Step]]:
    for name, model, batch in models():
        yield name, training(model.to(device), batch.to(device))


def models() -> Iterator[tuple[str, nn.Module, Tensor]]:
    torch.manual_seed(0)
    yield "perceptron", nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)), torch.rand(32, 64)
    layers = (nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.LazyLinear(1))
    yield "convolutions", nn.Sequential(*layers), torch.rand(8, 3, 32, 32)
    yield "transformer", nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), torch.rand(8, 32, 128)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    yield "six layers", nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.rand(8, 64, 128)


def training(model: nn.Module, batch: Tensor) -> Step:
    model(batch)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step
