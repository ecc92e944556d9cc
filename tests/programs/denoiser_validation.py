# kind: validation, vision
"""Train a denoiser; measure it on held-out images after each epoch."""

import torch
from torch import nn


class Denoiser(nn.Sequential):
    def __init__(self, channels=24):
        super().__init__(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 1, 3, padding=1),
        )


class Fitter:
    def __init__(self, model, train_images, held_out):
        self.model, self.train_images, self.held_out = model, train_images, held_out
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_epoch(self):
        self.model.train()
        for clean in self.train_images:
            self.optimizer.zero_grad()
            noisy = clean + 0.1 * torch.randn_like(clean)
            nn.functional.mse_loss(self.model(noisy), clean).backward()
            self.optimizer.step()

    def validate(self):
        self.model.eval()
        squared_errors = []
        for clean in self.held_out:
            restored = self.model(clean + 0.1)  # expect: unused-autograd-graph
            squared_errors.append((restored.detach() - clean).square().mean())
        return torch.stack(squared_errors).mean()


torch.manual_seed(10)
fitter = Fitter(Denoiser(), torch.rand(1, 8, 1, 48, 48), torch.rand(3, 16, 1, 48, 48))
for _ in range(14):
    fitter.train_epoch()
    error = fitter.validate()
print("validation error", error.item())
