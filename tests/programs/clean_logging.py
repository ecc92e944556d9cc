# kind: matrix factorisation
"""Matrix factorisation that logs its loss every fifty steps."""

import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self, users, films, rank):
        super().__init__()
        self.users = nn.Parameter(0.1 * torch.randn(users, rank))
        self.films = nn.Parameter(0.1 * torch.randn(films, rank))

    def forward(self):
        return self.users @ self.films.T


def fit(ratings, steps, log_every=50):
    model = Factors(*ratings.shape, rank=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=20.0)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(), ratings)
        loss.backward()
        optimizer.step()
        if step % log_every == 0:
            print(f"step {step}: {loss.item():.4f}")


torch.manual_seed(7)
fit(torch.rand(900, 700), steps=150)
