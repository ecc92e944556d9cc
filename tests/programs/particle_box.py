# kind: simulation
"""Particles that repel and attract each other in a box, without any network."""

import torch


def simulate(n, steps, dt=1e-4):
    torch.manual_seed(21)
    side = int(n**0.5) + 1
    index = torch.arange(n)
    position = torch.stack((index % side, index // side), dim=1) * 1.2 + 0.05 * torch.rand(n, 2)
    velocity = torch.zeros(n, 2)
    own = torch.eye(n) * 1e6

    def strength(d2):
        return 24 * (2 / (d2 * d2 * d2) - 1) / (d2 * d2 * d2 * d2) * (d2 < 9)  # expect: unfused-pointwise

    for _ in range(steps):
        gap = position.unsqueeze(1) - position.unsqueeze(0)
        d2 = gap.square().sum(-1) + own
        force = strength(d2)
        velocity = velocity + dt * (force.sum(1, keepdim=True) * position - force @ position)
        position = position + dt * velocity
    return velocity


speeds = simulate(1000, 24).norm(dim=1)
print("mean speed", speeds.mean().item())
