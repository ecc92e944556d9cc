"""Fit functions on a grid with a smoothing kernel. Everything is a function of the config and the parameters."""
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Config:
    points: int = 700
    width: int = 64
    tau: float = 0.05
    lr: float = 0.05
    steps: int = 400
    seed: int = 3


def init(cfg: Config) -> dict[str, torch.Tensor]:
    params = {
        'w1': torch.randn(1, cfg.width),
        'b1': torch.zeros(cfg.width),
        'w2': torch.randn(cfg.width, 1) / cfg.width**0.5,
    }
    return {name: p.requires_grad_() for name, p in params.items()}


def kernel(cfg: Config, grid: torch.Tensor) -> torch.Tensor:
    gaps = (grid[:, None] - grid[None, :]) / cfg.tau
    return torch.softmax(-gaps.square() / 2, dim=-1)


def forward(params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(x[:, None] @ params['w1'] + params['b1']) @ params['w2'])[:, 0]


def train(cfg: Config) -> tuple[dict[str, torch.Tensor], float]:
    torch.manual_seed(cfg.seed)
    params = init(cfg)
    grid = torch.linspace(-1, 1, cfg.points)
    target = torch.sin(6 * grid)
    for step in range(cfg.steps):
        smooth = kernel(cfg, grid)  # expect: redundant-recomputation
        noisy = smooth @ (target + 0.3 * torch.randn(cfg.points))
        loss = (smooth @ forward(params, grid) - noisy).square().mean()
        grads = torch.autograd.grad(loss, list(params.values()))
        with torch.no_grad():
            for p, g in zip(params.values(), grads):
                p -= cfg.lr * g
    return params, loss.item()


if __name__ == '__main__':
    params, loss = train(Config())
    print(f'{loss:.5f}', *(f'{p.norm().item():.4f}' for p in params.values()))
