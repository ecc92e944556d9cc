# kind: tabular
"""Default-risk model on a synthetic credit table (numpy feature engineering)."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def engineer(rows, rng):
    income = rng.lognormal(10, 0.6, rows)
    debt = rng.lognormal(9, 0.9, rows)
    age = rng.uniform(18, 80, rows)
    util = rng.beta(2, 3, (rows, 12))
    spend = rng.gamma(2.0, 300.0, (rows, 80))
    ratio = debt / income
    feats = np.column_stack([np.log(income), np.log(debt), age, ratio, util, np.log1p(spend), util.mean(1), util.std(1)])
    feats = (feats - feats.mean(0)) / feats.std(0)
    logit = 1.2 * feats[:, 3] + 0.8 * feats[:, -2] - 0.03 * (age - 40) + 0.3 * rng.standard_normal(rows)
    return feats, logit > 0.5


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class ResMLP(nn.Module):
    def __init__(self, n_in, width=320, depth=3):
        super().__init__()
        self.stem = nn.Linear(n_in, width)
        self.blocks = nn.Sequential(*(ResBlock(width) for _ in range(depth)))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(-1)


def load(rows, seed):
    table, default = engineer(rows, np.random.default_rng(seed))
    X = torch.from_numpy(table)  # expect: float64-compute
    return X, torch.from_numpy(default).to(X.dtype)


@torch.inference_mode()
def auc(model, X, y):
    model.eval()
    order = model(X).argsort()
    model.train()
    ranks = torch.empty(len(y), dtype=torch.float32)
    ranks[order] = torch.arange(1, len(y) + 1, dtype=torch.float32)
    pos = y.sum()
    return ((ranks @ y.float() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=512)
    args = ap.parse_args()
    torch.manual_seed(11)
    X, y = load(8192, 11)
    Xv, yv = load(2048, 12)
    model = ResMLP(X.shape[1]).to(X.dtype)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        parts = torch.randperm(len(X)).split(args.batch)
        for rows in parts:
            loss = F.binary_cross_entropy_with_logits(model(X[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(parts):.4f} auc {auc(model, Xv, yv):.4f}", flush=True)


if __name__ == "__main__":
    main()
