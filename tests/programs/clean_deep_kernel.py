# kind: Gaussian process
"""Deep kernel learning: float32 features, exact Gaussian-process likelihood in float64
(the Cholesky factorisation of a nearly singular kernel fails in float32)."""
import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class DeepKernel(nn.Module):
    def __init__(self, inputs, width=1280, dim=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width), nn.SiLU(),
            nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, dim),
        )
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-3.0))

    def features(self, x):
        return self.body(x)

    def covariance(self, a, b):
        squared = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp_min(0)
        return torch.exp(2 * self.log_scale.double()) * torch.exp(-0.5 * squared)

    def negative_log_likelihood(self, x, y):
        z = self.features(x).double()
        noise = torch.exp(2 * self.log_noise.double()) + 1e-8
        k = self.covariance(z, z) + noise * torch.eye(len(z), dtype=z.dtype)
        factor = torch.linalg.cholesky(k)
        target = y.double()[:, None]
        white = torch.linalg.solve_triangular(factor, target, upper=False)
        value = 0.5 * white.square().sum() + factor.diagonal().log().sum()
        return value / len(y) + 0.5 * math.log(2 * math.pi)

    @torch.inference_mode()
    def predict(self, x, y, query):
        z, q = self.features(x).double(), self.features(query).double()
        noise = torch.exp(2 * self.log_noise.double()) + 1e-8
        factor = torch.linalg.cholesky(self.covariance(z, z) + noise * torch.eye(len(z), dtype=z.dtype))
        weights = torch.cholesky_solve(y.double()[:, None], factor)
        return (self.covariance(q, z) @ weights).squeeze(1).float()


def response(x):
    return torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--points", type=int, default=160)
    args = parser.parse_args()

    torch.manual_seed(0)
    pool = torch.randn(4000, 24)
    target = response(pool) + 0.05 * torch.randn(4000)
    query = torch.randn(500, 24)
    model = DeepKernel(24)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)

    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(pool), (args.points,))
        loss = model.negative_log_likelihood(pool[rows], target[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            guess = model.predict(pool[:400], target[:400], query)
            error = F.mse_loss(guess, response(query)).sqrt().item()
            print(f"step {step}: nll {loss.item():.3f}, test rmse {error:.3f}, "
                  f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
