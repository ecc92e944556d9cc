# kind: tabular
"""A deep residual network for tables, trained with Adam as it comes."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.lin1 = nn.Linear(d, d)
        self.lin2 = nn.Linear(d, d)

    def forward(self, h):
        return h + self.lin2(torch.relu(self.lin1(self.norm(h))))


class TabularNet(nn.Module):
    def __init__(self, columns, d=48, depth=30):
        super().__init__()
        self.stem = nn.Linear(columns, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.out = nn.Linear(d, 1)

    def forward(self, rows):
        h = self.stem(rows)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


class Learner:
    def __init__(self, net):
        self.net = net
        self.optim = torch.optim.Adam(net.parameters(), lr=1e-3)

    def learn(self, rows, target):
        self.optim.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(rows).squeeze(1), target)
        loss.backward()
        self.optim.step()  # expect: single-tensor-optimizer
        return loss.detach()


def main():
    torch.manual_seed(4)
    learner = Learner(TabularNet(columns=20))
    rows, target = torch.randn(64 * 25, 20), torch.rand(64 * 25).round()
    for a, b in zip(rows.split(64), target.split(64), strict=True):
        last = learner.learn(a, b)
    print("loss", last.item())


main()
