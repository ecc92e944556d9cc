# kind: forecasting
"""Predicts each next hour of traffic at many junctions with a recurrent cell and a small head."""

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, inputs=6, hidden=64):
        super().__init__()
        self.cell = nn.LSTMCell(inputs, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))
        self.hidden = hidden

    def forward(self, hours):
        h = hours.new_zeros(len(hours), self.hidden)
        c = hours.new_zeros(len(hours), self.hidden)
        predictions = []
        for t in range(hours.size(1)):
            h, c = self.cell(hours[:, t], (h, c))  # expect: unrolled-recurrence
            predictions.append(self.head(h))
        return torch.cat(predictions, dim=1)


def main():
    torch.manual_seed(21)
    week = torch.randn(32, 97, 6)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(20):
        predicted = model(week[:, :-1])
        loss = nn.functional.mse_loss(predicted, week[:, 1:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 5 == 0:
            print(epoch, round(loss.item(), 4))


main()
