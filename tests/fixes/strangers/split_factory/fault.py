from typing import NamedTuple
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


class Loaders(NamedTuple):
    train: DataLoader
    valid: DataLoader


def make_loaders(*, rows=16_384, batch_size=1024) -> Loaders:
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(rows, 24, generator=generator)
    everything = TensorDataset(x, x[:, :3].sum(1))
    train, valid = random_split(everything, [rows - 2048, 2048], generator=generator)
    return Loaders(
        train=DataLoader(train, batch_size=batch_size, shuffle=True),  # expect: per-sample-fetch
        valid=DataLoader(valid, batch_size=batch_size),
    )


def run(epochs=12):
    torch.manual_seed(2)
    loaders = make_loaders()
    net = torch.nn.Linear(24, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(epochs):
        for x, y in loaders.train:
            opt.zero_grad()
            loss = (net(x).squeeze(1) - y).pow(2).mean()
            loss.backward()
            opt.step()
    with torch.no_grad():
        errors = [float((net(x).squeeze(1) - y).abs().mean()) for x, y in loaders.valid]
    print(f"{loss.item():.5f} {sum(errors) / len(errors):.5f}")


run()
