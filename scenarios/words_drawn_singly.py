"""A language model writes by drawing one word of a large vocabulary after the other, on a CPU.

For a single draw `torch.multinomial` takes a random number for each word of the vocabulary, on one thread. Beside a
small model that is most of the time. If it draws two with replacement, it adds up the probabilities and takes two
random numbers; the second word is dropped.

Source: PyTorch's `aten/src/ATen/native/Distributions.cpp`, "fast-path for no replacement (or if only one sample draw)".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("random-number-per-class",)


@dataclass(frozen=True)
class State:
    words: nn.Embedding
    cell: nn.GRU
    scores: nn.Linear
    prompts: list[Tensor]
    said: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    words, cell = nn.Embedding(8_000, 64, device=device), nn.GRU(64, 64, device=device)
    prompts = [torch.randint(0, 8_000, (1, 16), device=device) for _ in range(16)]
    said = torch.zeros(16, 1, dtype=torch.long, device=device)
    return State(words, cell, nn.Linear(64, 8_000, device=device), prompts, said)


@torch.inference_mode()
def pitfall(state: State) -> Iterator[Tensor]:
    for word in state.prompts:
        output, _ = state.cell(state.words(word))
        likely = state.scores(output[0]).softmax(dim=-1)
        state.said.copy_(torch.multinomial(likely, 1))  # expect: random-number-per-class
        yield likely.amax(dim=-1)


@torch.inference_mode()
def fix(state: State) -> Iterator[Tensor]:
    for word in state.prompts:
        output, _ = state.cell(state.words(word))
        likely = state.scores(output[0]).softmax(dim=-1)
        state.said.copy_(torch.multinomial(likely, 2, replacement=True)[:, :1])
        yield likely.amax(dim=-1)
