# kind: VAE
"""A variational autoencoder with a trainer that remembers its metrics."""

import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(400, 400), nn.ReLU())
        self.mu = nn.Linear(400, 24)
        self.log_var = nn.Linear(400, 24)
        self.decoder = nn.Sequential(nn.Linear(24, 400), nn.ReLU(), nn.Linear(400, 400), nn.Sigmoid())

    def forward(self, x):
        h = self.encoder(x)
        mu, log_var = self.mu(h), self.log_var(h)
        z = mu + torch.exp(0.5 * log_var) * torch.randn_like(mu)
        return self.decoder(z), mu, log_var


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
        self.metrics = {"reconstruction": [], "steps": 0}

    def training_step(self, x):
        x_hat, mu, log_var = self.model(x)
        reconstruction = nn.functional.binary_cross_entropy(x_hat, x, reduction="sum") / len(x)
        divergence = -0.5 * (1 + log_var - mu.square() - log_var.exp()).sum() / len(x)
        self.metrics["reconstruction"].append(reconstruction)  # expect: retained-graph
        self.metrics["steps"] += 1
        return reconstruction + divergence

    def fit(self, batches):
        for x in batches:
            elbo = self.training_step(x)
            self.optimizer.zero_grad()
            elbo.backward()
            self.optimizer.step()


def make_batches(n):
    g = torch.Generator().manual_seed(5)
    return [torch.rand(800, 400, generator=g) for _ in range(n)]


if __name__ == "__main__":
    torch.manual_seed(5)
    trainer = Trainer(VAE(), lr=1e-3)
    trainer.fit(make_batches(30))
    print("steps:", trainer.metrics["steps"])
    print("final reconstruction:", round(trainer.metrics["reconstruction"][-1].item(), 2))
