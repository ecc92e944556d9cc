# kind: training, evaluation after each epoch
"""Which of ten machines made a sound; the held-out sounds are looked at after each epoch."""

import torch
from torch import nn

torch.manual_seed(3)
CENTRES = torch.randn(10, 128)


def sounds(count):
    machine = torch.randint(0, 10, (count,))
    return CENTRES[machine] + 2 * torch.randn(count, 128), machine


class Recogniser(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(128, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Trainer:
    def __init__(self):
        self.model = Recogniser()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.seen, self.held_out = sounds(24 * 64), sounds(6000)

    def train(self):
        self.model.train()
        for rows in torch.randperm(len(self.seen[0])).split(64):
            x, y = self.seen[0][rows], self.seen[1][rows]
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    def validate(self):
        self.model.eval()
        right = 0
        for x, y in zip(self.held_out[0].split(1500), self.held_out[1].split(1500), strict=True):
            scores = self.model(x)  # expect: unused-autograd-graph
            right += int((scores.argmax(1) == y).sum())
        return right / len(self.held_out[0])

    def fit(self, epochs):
        best = 0.0
        for epoch in range(epochs):
            self.train()
            best = max(best, self.validate())
        print(f"best of {epochs} epochs: {best:.3f}")


Trainer().fit(14)
