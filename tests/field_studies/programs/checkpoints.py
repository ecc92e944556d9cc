"""A model that is saved after each epoch, to a store that takes its time."""

import io
import time

import torch
from model import make, some_batches, train


class Store(io.BytesIO):
    def write(self, data):
        time.sleep(0.05)
        return super().write(data)


model, optimizer = make()
for _ in range(5):
    train(model, optimizer, some_batches(60))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Store())
