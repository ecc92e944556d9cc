"""A plain loop by accelerate that does not use profkit."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

import profkit

BATCHES = 24


def main() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.rand(BATCHES * 8, 16)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    # From a step on that is named, so that steps which a busy machine makes longer are not taken for cycles.
    with profkit.profile("accelerated", at_step=1, wait=1, active=2):
        for (batch,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
