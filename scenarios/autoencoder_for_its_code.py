"""An autoencoder is called for its code, and its decoder runs for nobody.

``autoencoder(x)`` returns the reconstruction and the code. A program that learns on the code takes ``[1]`` of that: the
reconstruction has been computed by then, and is thrown away. Calling the encoder gives the same code.

Source: Ha, Schmidhuber, World Models (2018), whose memory learns on the codes of a trained autoencoder.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unread-result",)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(3600, 32))
        self.decoder = nn.Sequential(
            nn.Linear(32, 64 * 15 * 15),
            nn.ReLU(),
            nn.Unflatten(1, (64, 15, 15)),
            nn.ConvTranspose2d(64, 3, 4, stride=2),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        code = self.encoder(x)
        return self.decoder(code), code  # expect: unread-result


@dataclass(frozen=True)
class State:
    autoencoder: Autoencoder
    memory: nn.Linear
    pictures: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    pictures = torch.rand(16, 64, 3, 32, 32, device=device)
    return State(Autoencoder().to(device), nn.Linear(32, 32).to(device), pictures)


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.Adam(state.memory.parameters())
    for x in state.pictures:
        with torch.no_grad():
            code = state.autoencoder(x)[1]
        loss = (state.memory(code[:-1]) - code[1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.Adam(state.memory.parameters())
    for x in state.pictures:
        with torch.no_grad():
            code = state.autoencoder.encoder(x)
        loss = (state.memory(code[:-1]) - code[1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()
