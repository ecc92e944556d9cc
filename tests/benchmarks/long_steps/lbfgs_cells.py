"""L-BFGS with a closure: two cells over a thousand time steps, a step of ten closures."""

import sys

import torch
from torch import Tensor, nn

LENGTH = 1000


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTMCell(1, 32)
        self.second = nn.LSTMCell(32, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, series: Tensor) -> Tensor:
        h = c = h2 = c2 = torch.zeros(len(series), 32)
        outputs = []
        for value in series.split(1, dim=1):
            h, c = self.first(value, (h, c))
            h2, c2 = self.second(h, (h2, c2))
            outputs.append(self.head(h2))
        return torch.cat(outputs, dim=1)


def main(rounds: int) -> None:
    torch.manual_seed(0)
    waves = torch.sin(torch.arange(LENGTH + 1) / 20 + torch.rand(16, 1) * 10)
    model = Forecaster()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = (model(waves[:, :-1]) - waves[:, 1:]).square().mean()
        loss.backward()
        return loss

    for step in range(rounds):
        loss = optimizer.step(closure)
        print(f"step {step}: {loss:.6f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
