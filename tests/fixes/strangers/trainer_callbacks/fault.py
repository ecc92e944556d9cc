"""A little trainer in the manner of the large ones: the module computes, callbacks listen."""
from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn
import torch.nn.functional as F


class Callback:
    def on_fit_start(self, trainer): ...
    def on_batch_end(self, trainer, outputs): ...
    def on_fit_end(self, trainer): ...


class History(Callback):
    def on_fit_start(self, trainer):
        self.records = defaultdict(list)

    def on_batch_end(self, trainer, outputs):
        for name, value in outputs.items():
            self.records[name].append(value)  # expect: retained-graph

    def on_fit_end(self, trainer):
        for name, values in self.records.items():
            print(f'{name}: {sum(values) / len(values):.5f}')


class Autoencoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, 64), nn.ELU(), nn.Linear(64, 8))
        self.decode = nn.Sequential(nn.Linear(8, 64), nn.ELU(), nn.Linear(64, width))

    def training_step(self, batch):
        code = self.encode(batch)
        rebuilt = F.mse_loss(self.decode(code), batch)
        sparse = code.abs().mean()
        return {'loss': rebuilt + 1e-3 * sparse, 'rebuilt': rebuilt, 'sparse': sparse}

    def configure_optimizers(self):
        return torch.optim.RMSprop(self.parameters(), lr=1e-3)


class Trainer:
    def __init__(self, max_steps, callbacks=()):
        self.max_steps, self.callbacks = max_steps, list(callbacks)

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def fit(self, module, batches):
        optimizer = module.configure_optimizers()
        self.call('on_fit_start')
        for _, batch in zip(range(self.max_steps), batches):
            outputs = module.training_step(batch)
            optimizer.zero_grad()
            outputs['loss'].backward()
            optimizer.step()
            self.call('on_batch_end', outputs)
        self.call('on_fit_end')


def waves(size=128, width=96):
    t = torch.linspace(0, 6.28, width)
    while True:
        yield torch.sin(t * torch.rand(size, 1) * 4 + torch.rand(size, 1) * 6)


if __name__ == '__main__':
    torch.manual_seed(5)
    Trainer(600, [History()]).fit(Autoencoder(), waves())
