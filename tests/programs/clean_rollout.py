# kind: forecasting
# expect: no opportunities
"""Forecasts a day ahead: the cell reads its own last prediction, so that no hour can come before the one before it."""

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, inputs=6, hidden=64):
        super().__init__()
        self.reader = nn.LSTM(inputs, hidden, batch_first=True)
        self.cell, self.head = nn.LSTMCell(inputs, hidden), nn.Linear(hidden, inputs)

    def forward(self, past, ahead):
        states, (h, c) = self.reader(past)
        h, c = h[0], c[0]
        hour = self.head(h)
        hours = [hour]
        for _ in range(ahead - 1):
            h, c = self.cell(hour, (h, c))
            hour = self.head(h)
            hours.append(hour)
        return torch.stack(hours, dim=1)


torch.manual_seed(22)
days = torch.randn(32, 96, 6)
model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for epoch in range(20):
    predicted = model(days[:, :72], 24)
    loss = nn.functional.mse_loss(predicted, days[:, 72:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
