from typing import Callable, Iterable

import torch
from torch import nn


class Trainer:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, log: Callable[[str], None] = print):
        self.model, self.optimizer, self.log = model, optimizer, log
        self.epoch = 0

    def step(self, clip, target) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.l1_loss(self.model(clip).squeeze(-1), target)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run_epoch(self, batches: Iterable) -> None:
        losses = [self.step(*batch) for batch in batches]
        self.epoch += 1
        self.log(f"epoch {self.epoch}: {sum(losses) / len(losses):.6f}")
