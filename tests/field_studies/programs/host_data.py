"""Batches that the main process makes while the model waits."""

import time

import torch
from model import make
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.004)  # a file is read and decoded
        return torch.randn(64)


model, optimizer = make()
for batch in DataLoader(Images(), batch_size=8):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
