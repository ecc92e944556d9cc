"""A model of the next state encodes a clip's frames and the frames that follow them, of which all but one are the same.

A memory of what a player saw hands out two batches: frames, and for each the next one. As tensors they have nothing in
common, so the encoder runs twice over the same pictures. One batch with the last frame added holds all of them.

Source: github.com/ctallec/world-models, `trainmdrnn.py`, which encodes `obs` and `next_obs`; measured at 41 % of the
program's training.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("rows-computed-again",)


@dataclass(frozen=True)
class State:
    encoder: nn.Module
    transition: nn.Module
    optimizer: torch.optim.Optimizer
    clips: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 24, 4, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 4, stride=2), nn.ReLU(), nn.Flatten()]
    encoder = nn.Sequential(*layers, nn.Linear(4800, 32)).to(device)
    transition = nn.Linear(32, 32).to(device)
    weights = [*encoder.parameters(), *transition.parameters()]
    clips = torch.rand(12, 33, 3, 48, 48, device=device)
    pairs = [(clip[:-1].clone(), clip[1:].clone()) for clip in clips]
    return State(encoder, transition, torch.optim.SGD(weights, lr=1e-3, fused=True), pairs)


def pitfall(state: State) -> Iterator[Tensor]:
    for frames, following in state.clips:
        state.optimizer.zero_grad()
        latents = state.encoder(frames)
        targets = state.encoder(following)  # expect: rows-computed-again
        loss = nn.functional.mse_loss(state.transition(latents), targets)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for frames, following in state.clips:
        state.optimizer.zero_grad()
        encoded = state.encoder(torch.cat([frames, following[-1:]]))
        latents, targets = encoded[:-1], encoded[1:]
        loss = nn.functional.mse_loss(state.transition(latents), targets)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
