# kind: curve fitting
"""Fit a curve and stop once the loss is low enough."""

import torch


def features(x, order):
    return torch.cat([torch.sin(k * x) for k in range(1, order + 1)], dim=1)


def fit_until(threshold, max_iterations=40):
    torch.manual_seed(9)
    x = torch.linspace(-3, 3, 60_000).unsqueeze(1)
    basis = features(x, 16)
    y = 0.3 * x + torch.cos(2 * x)
    hidden = torch.nn.Linear(16, 64)
    weights = torch.nn.Linear(64, 1)
    opt = torch.optim.SGD([*hidden.parameters(), *weights.parameters()], lr=0.05)
    for iteration in range(max_iterations):
        loss = torch.mean((weights(torch.tanh(hidden(basis))) - y) ** 2)
        if loss < threshold:  # expect: host-sync-in-step
            return iteration, loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    return max_iterations, loss


iterations, final = fit_until(1e-3)
print("stopped after", iterations, "iterations at", final.item())
