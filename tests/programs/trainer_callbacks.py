# kind: trainer with callbacks
"""Trainer class with callbacks; a checkpoint at the end of each batch."""
import os
import tempfile

import torch
from torch import nn


class Callback:
    def on_batch_end(self, trainer): ...
    def on_epoch_end(self, trainer): ...


class LossMeter(Callback):
    def __init__(self):
        self.total, self.n = 0, 0

    def on_batch_end(self, trainer):
        self.total = self.total + trainer.loss.detach()
        self.n += 1

    def on_epoch_end(self, trainer):
        print("epoch", trainer.epoch, (self.total / self.n).item())


class Checkpointer(Callback):
    def __init__(self, folder):
        self.path = os.path.join(folder, "last.pt")

    def on_batch_end(self, trainer):
        state = {"model": trainer.model.state_dict(), "opt": trainer.optimizer.state_dict(), "epoch": trainer.epoch}
        torch.save(state, self.path)  # expect: checkpoint-in-step


class Trainer:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks

    def fire(self, name):
        for c in self.callbacks:
            getattr(c, name)(self)

    def fit(self, data, epochs):
        for self.epoch in range(epochs):
            for x, y in data:
                self.optimizer.zero_grad()
                self.loss = nn.functional.mse_loss(self.model(x), y)
                self.loss.backward()
                self.optimizer.step()
                self.fire("on_batch_end")
            self.fire("on_epoch_end")


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 512), nn.ELU(), nn.Linear(512, 512), nn.ELU(), nn.Linear(512, 8))
data = [(torch.randn(256, 64), torch.randn(256, 8)) for _ in range(12)]
with tempfile.TemporaryDirectory() as folder:
    Trainer(net, torch.optim.Adam(net.parameters(), fused=True), [LossMeter(), Checkpointer(folder)]).fit(data, 3)
