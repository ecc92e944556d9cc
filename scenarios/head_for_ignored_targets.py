"""The head scores every position, and the loss ignores all but a few of them.

A masked language model is trained on the fifteen percent of its tokens that were masked: the targets of the others are
-100, which `cross_entropy` ignores. The head still computes a score for each word of the vocabulary at each position,
and its backward pass as many zeros. Picking the positions first gives the same loss.

Source: https://github.com/huggingface/transformers/issues/3294
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

triggers = ("zeroed-results",)
WORDS, WIDTH, LENGTH, BATCH = 2000, 96, 64, 16


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        mixed = functional.gelu(self.mix(self.embed(words)))
        return torch.fft.fft(mixed, dim=1).real


@dataclass(frozen=True)
class State:
    model: Encoder
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = Encoder().to(device)
    batches = []
    for _ in range(24):
        words = torch.randint(WORDS, (BATCH, LENGTH))
        labels = torch.where(torch.rand(BATCH, LENGTH) < 0.15, words, -100)
        batches.append((words.to(device), labels.to(device)))
    return State(model, torch.optim.SGD(model.parameters(), lr=0.1), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for words, labels in state.batches:
        scores = state.model.head(state.model(words))
        loss = functional.cross_entropy(scores.view(-1, WORDS), labels.view(-1))  # expect: zeroed-results
        yield learn(state, loss)


def fix(state: State) -> Iterator[Tensor]:
    for words, labels in state.batches:
        chosen = labels != -100
        scores = state.model.head(state.model(words)[chosen])
        yield learn(state, functional.cross_entropy(scores, labels[chosen]))


def learn(state: State, loss: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
