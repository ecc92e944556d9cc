# kind: tabular with a loader
"""Click-through model on arrays; big batches from a TensorDataset."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
X, y = torch.randn(60000, 24), torch.rand(60000)
train, valid = random_split(TensorDataset(X, y), [50000, 10000])
train_dl = DataLoader(train, batch_size=1000, shuffle=True)  # expect: per-sample-fetch
valid_dl = DataLoader(valid, batch_size=1000)


def loss_batch(model, loss_func, xb, yb, opt=None):
    loss = loss_func(model(xb).squeeze(1), yb)
    if opt is not None:
        loss.backward()
        opt.step()
        opt.zero_grad()
    return loss.detach(), len(xb)


def fit(epochs, model, loss_func, opt, train_dl, valid_dl):
    for epoch in range(epochs):
        t0 = time.time()
        model.train()
        for xb, yb in train_dl:
            loss_batch(model, loss_func, xb, yb, opt)
        model.eval()
        with torch.no_grad():
            losses, nums = zip(*[loss_batch(model, loss_func, xb, yb) for xb, yb in valid_dl])
        print(epoch, (sum(a * n for a, n in zip(losses, nums)) / sum(nums)).item(), "in", time.time() > t0)


net = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 1))
fit(1, net, nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=0.01), train_dl, valid_dl)
