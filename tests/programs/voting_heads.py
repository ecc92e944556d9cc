# kind: inference, ensemble
"""One trunk, many small heads of the same shape, and a weighted vote."""

import torch
from torch import nn


class ManyHeads(nn.Module):
    def __init__(self, heads=80):
        super().__init__()
        self.trunk = nn.Linear(40, 64)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
            for _ in range(heads)
        )

    def forward(self, x):
        shared = torch.relu(self.trunk(x))
        total = torch.zeros(len(x), 1)
        for weight, head in enumerate(self.heads, start=1):
            answer = head(shared)  # expect: looped-modules
            total = total + answer / weight
        return total


@torch.inference_mode()
def answer_all(model, questions):
    return [model(q).mean(dim=0) for q in questions]


torch.manual_seed(15)
results = answer_all(ManyHeads().eval(), torch.randn(40, 16, 40))
print("questions answered:", 16 * len(results), "mean", torch.stack(results).mean().item())
