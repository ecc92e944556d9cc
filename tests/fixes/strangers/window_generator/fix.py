import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Windows:
    """Yields windows of a signal."""

    def __init__(self, signal, length=400, batch=48):
        self.signal, self.length, self.batch = signal, length, batch

    def __iter__(self):
        rng = np.random.default_rng(0)
        while True:
            starts = rng.integers(0, len(self.signal) - self.length - 1, self.batch)
            rows = [self.signal[s : s + self.length] for s in starts]
            inputs = torch.tensor(np.asarray(rows), dtype=torch.float32)  # expect: slow-tensor-construction
            yield inputs[:, :-1], inputs[:, -1]


def main():
    torch.manual_seed(0)
    signal = np.sin(np.arange(50_000) / 9) + np.random.default_rng(1).normal(size=50_000)
    net = nn.Sequential(nn.Linear(399, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = optim.Adam(net.parameters())
    for number, (x, y) in enumerate(Windows(signal)):
        if number == 300:
            break
        opt.zero_grad()
        loss = ((net(x)[:, 0] - y) ** 2).mean()
        loss.backward()
        opt.step()
    print(f"final {loss.item():.4f}")


if __name__ == "__main__":
    main()
