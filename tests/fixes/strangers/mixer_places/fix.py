from dataclasses import dataclass
import math
import torch
from torch import nn


@dataclass(frozen=True)
class MixerConfig:
    tokens: int = 256
    width: int = 192
    hidden: int = 16
    batch: int = 64
    steps: int = 60


class PatchMixer(nn.Module):
    """Adds learned places to patches and pools them."""

    def __init__(self, cfg: MixerConfig):
        super().__init__()
        self.cfg = cfg
        self.places = nn.Parameter(torch.randn(1, cfg.tokens, cfg.width) / math.sqrt(cfg.width))
        self.gate = nn.Linear(cfg.width, cfg.hidden)
        self.out = nn.Linear(cfg.hidden, 10)

    def forward(self, patches):
        tokens = patches + self.places
        return self.out(self.gate(tokens).relu().mean(1))


def train(cfg: MixerConfig) -> list:
    torch.manual_seed(2)
    model = PatchMixer(cfg)
    optim = torch.optim.SGD(model.parameters(), lr=.1)
    patches = torch.randn(cfg.batch, cfg.tokens, cfg.width)
    labels = torch.arange(cfg.batch) % 10
    curve = []
    for _ in range(cfg.steps):
        loss = nn.functional.cross_entropy(model(patches), labels)
        optim.zero_grad()
        loss.backward()
        optim.step()
        curve.append(loss.item())
    return curve


if __name__ == '__main__':
    curve = train(MixerConfig())
    print(f'{curve[0]:.5f} -> {curve[-1]:.5f}')
