"""Physics-informed fit of a diffusion: residuals by gradients of gradients."""
import argparse
from dataclasses import dataclass, fields

import torch
from torch import Tensor, autograd, nn


@dataclass
class Config:
    width: int = 64
    depth: int = 3
    points: int = 512
    steps: int = 80
    lr: float = 1e-3
    seed: int = 0

    @classmethod
    def from_args(cls) -> "Config":
        parser = argparse.ArgumentParser(description=__doc__)
        for f in fields(cls):
            parser.add_argument(f"--{f.name}", type=type(f.default), default=f.default)
        return cls(**vars(parser.parse_args()))


class Field(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        sizes = [2] + [cfg.width] * cfg.depth + [1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = torch.cat([x, t], dim=1)
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        return self.layers[-1](h)


def residual(model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
    u = model(x, t)
    ones = torch.ones_like(u)
    u_x = autograd.grad(u, x, ones, create_graph=True)[0]
    u_t = autograd.grad(u, t, ones, create_graph=True)[0]  # expect: repeated-backward-pass
    u_xx = autograd.grad(u_x, x, ones, create_graph=True)[0]
    return u_t - 0.1 * u_xx


def main() -> None:
    cfg = Config.from_args()
    torch.manual_seed(cfg.seed)
    model = Field(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        x = torch.rand(cfg.points, 1, requires_grad=True)
        t = torch.rand(cfg.points, 1, requires_grad=True)
        start = model(x, torch.zeros_like(t)) - torch.sin(torch.pi * x)
        loss = residual(model, x, t).square().mean() + start.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 20 == 0:
            print(f"{step + 1:5d}  {loss.item():.6f}")


if __name__ == "__main__":
    main()
