# kind: RNN
"""Rolls a hand-written recurrent cell forward on its own predictions, and refines an estimate with tied weights."""
import torch
import torch.nn as nn


class Rollout(nn.Module):
    def __init__(self, values=6, hidden=64):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.Linear(values + hidden, hidden)
        self.out = nn.Linear(hidden, values)
        self.look = nn.Linear(values, hidden)
        self.back = nn.Linear(hidden, hidden)

    def forward(self, first, steps):
        value, h = first, first.new_zeros(len(first), self.hidden)
        values = []
        for _ in range(steps):
            h = torch.tanh(self.cell(torch.cat([value, h], dim=1)))
            value = self.out(h)
            values.append(value)
        for _ in range(12):
            value = value - 0.1 * self.out(h)
            h = torch.tanh(self.look(value) + self.back(h))
        return torch.stack(values, dim=1), self.out(h)


torch.manual_seed(4)
model = Rollout()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for step in range(30):
    series = torch.randn(32, 31, 6)
    future, last = model(series[:, 0], 30)
    loss = (future - series[:, 1:]).pow(2).mean() + (last - series[:, -1]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, round(loss.item(), 3))
