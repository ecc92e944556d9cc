#!/usr/bin/env python
# Activity recognition from accelerometer windows; the arrays come from NumPy, the batches from a generator.
import numpy as np
import torch as th
import torch.nn as nn

WINDOW, CHANNELS, CLASSES = 128, 9, 6


def load(rng, n=1500):
    labels = rng.integers(CLASSES, size=n)
    signal = rng.standard_normal((n, WINDOW, CHANNELS)).astype(np.float32)
    signal += labels[:, None, None] * 0.2
    return signal, labels


def batches(signal, labels, size, rng):
    order = rng.permutation(len(signal))
    for start in range(0, len(order), size):
        picked = order[start:start + size]
        x = th.from_numpy(signal[picked])
        y = th.as_tensor(labels[picked])
        yield x.transpose(1, 2), y


def make_model():
    return nn.Sequential(
        nn.Conv1d(CHANNELS, 16, 5, stride=2), nn.ReLU(),
        nn.Conv1d(16, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, CLASSES))


def main():
    rng = np.random.default_rng(8)
    th.manual_seed(8)
    signal, labels = load(rng)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optim = th.optim.SGD(model.parameters(), lr=.05, momentum=.9)
    for epoch in range(4):
        total = 0.
        for x, y in batches(signal, labels, 50, rng):
            loss = criterion(model(x), y)
            optim.zero_grad(); loss.backward(); optim.step()
            total += loss.item()
        print('epoch %d: %.4f' % (epoch, total))


main()
