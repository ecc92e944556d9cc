# kind: training
"""Train an autoencoder and keep the loss curve."""

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.down = nn.Linear(n_in, n_hidden)
        self.up = nn.Linear(n_hidden, n_in)

    def forward(self, v):
        return self.up(F.relu(self.down(v)))


def main():
    torch.manual_seed(3)
    net = AutoEncoder(784, 256)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    data = torch.rand(4096, 784)
    curve = []

    def run_epoch(epoch):
        order = torch.randperm(len(data))
        for chunk in order.split(512):
            v = data[chunk]
            opt.zero_grad()
            err = F.mse_loss(net(v), v)
            err.backward()
            opt.step()
            curve.append(err)  # expect: retained-graph
        print("epoch", epoch, "done")

    for epoch in range(4):
        run_epoch(epoch)
    print("first", curve[0].item(), "last", curve[-1].item())


if __name__ == "__main__":
    main()
