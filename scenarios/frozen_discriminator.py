"""The generator's loss computes gradients of the discriminator too, and throws them away.

The generator learns through the discriminator, so the backward pass must go through it. But this loss does not train
the discriminator's weights. Their gradients are computed, stored, and cleared before the discriminator's own step.
``backward(inputs=…)`` names the wanted ones.

Source: PyTorch documentation, torch.Tensor.backward (``inputs``); the PyTorch DCGAN tutorial has the mistake.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of

triggers = ("unused-gradients",)


@dataclass(frozen=True)
class State:
    generator: nn.Module
    discriminator: nn.Module
    pictures: Tensor
    noise: Tensor
    is_real: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 512), nn.Tanh()).to(device)
    layers = [nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)]
    pictures = torch.rand(24, 512, 512, device=device)
    noise = torch.randn(24, 512, 16, device=device)
    return State(generator, nn.Sequential(*layers).to(device), pictures, noise, torch.ones(512, 1, device=device))


def pitfall(state: State) -> Iterator[Tensor]:
    generator, discriminator = state.generator, state.discriminator
    of_generator = torch.optim.SGD(generator.parameters(), lr=1e-2)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=1e-2)
    for real, noise in zip(state.pictures, state.noise, strict=True):
        made = generator(noise)
        of_discriminator.zero_grad()
        told = loss_of(discriminator(real), state.is_real) + discriminator(made.detach()).sigmoid().mean()
        told.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        loss = loss_of(discriminator(made), state.is_real)
        loss.backward()  # expect: unused-gradients
        of_generator.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    generator, discriminator = state.generator, state.discriminator
    of_generator = torch.optim.SGD(generator.parameters(), lr=1e-2)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=1e-2)
    for real, noise in zip(state.pictures, state.noise, strict=True):
        made = generator(noise)
        of_discriminator.zero_grad()
        told = loss_of(discriminator(real), state.is_real) + discriminator(made.detach()).sigmoid().mean()
        told.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        loss = loss_of(discriminator(made), state.is_real)
        loss.backward(inputs=list(generator.parameters()))
        of_generator.step()
        yield loss.detach()
