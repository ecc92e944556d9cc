# kind: cross validation
"""K-fold cross-validation of a residual MLP that predicts crop yield from (synthetic) field sensors."""
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    folds: int = 2
    steps: int = 20
    batch: int = 768
    width: int = 320
    depth: int = 4
    features: int = 60
    check_every: int = 3
    lr: float = 1e-3


@dataclass
class FoldResult:
    fold: int
    best: float = math.inf
    curve: list = field(default_factory=list)

    def add(self, step, rmse):
        self.curve.append((step, rmse))
        self.best = min(self.best, rmse)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(F.gelu(self.fc(self.norm(x))))


def build(cfg):
    return nn.Sequential(
        nn.Linear(cfg.features, cfg.width),
        *[Block(cfg.width) for _ in range(cfg.depth)],
        nn.LayerNorm(cfg.width),
        nn.Linear(cfg.width, 1),
    )


def field_data(n, cfg):
    x = torch.randn(n, cfg.features)
    w = torch.randn(cfg.features, 3) / math.sqrt(cfg.features)
    a, b, c = (x @ w).unbind(dim=1)
    y = torch.sin(2 * a) + b * c + 0.1 * torch.randn(n)
    return x, y


def rmse_on(model, x, y):
    model.eval()
    pred = model(x).squeeze(1)  # expect: unused-autograd-graph
    score = F.mse_loss(pred, y).sqrt()
    model.train()
    return score.item()


def run_fold(k, cfg, x, y, parts):
    held_out = parts[k]
    train_idx = torch.cat([p for i, p in enumerate(parts) if i != k])
    xv, yv = x[held_out], y[held_out]
    model = build(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-3, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=3 * cfg.lr, total_steps=cfg.steps)
    result = FoldResult(k)
    for step in range(1, cfg.steps + 1):
        pick = train_idx[torch.randint(0, len(train_idx), (cfg.batch,))]
        loss = F.mse_loss(model(x[pick]).squeeze(1), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % cfg.check_every == 0:
            result.add(step, rmse_on(model, xv, yv))
    return result


def main():
    torch.manual_seed(2024)
    cfg = Config()
    x, y = field_data(14_000, cfg)
    parts = torch.randperm(len(x)).chunk(cfg.folds)
    results = []
    for k in range(cfg.folds):
        results.append(run_fold(k, cfg, x, y, parts))
        print(f"fold {k}: best rmse {results[-1].best:.4f} last {results[-1].curve[-1][1]:.4f}")
    mean = sum(r.best for r in results) / len(results)
    print(f"cross-validated rmse {mean:.4f}")


if __name__ == "__main__":
    main()
