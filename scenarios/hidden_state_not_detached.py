"""Carrying the hidden state of a recurrent network to the next chunk without detaching it never ends its history.

The second chunk's backward pass reaches into the first chunk's graph, which has been freed. The error message suggests
``retain_graph=True``, and with it the program runs. But each backward pass goes through all chunks so far, so time and
memory grow with every step. Truncated backpropagation through time only passes on the state's values.

Source: PyTorch examples, word_language_model, repackage_hidden; PyTorch forums, "Trying to backward through the graph
a second time, but the buffers have already been freed".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("retained-graph",)
effect = "memory"


@dataclass(frozen=True)
class State:
    rnn: nn.GRU
    head: nn.Linear
    optimizer: torch.optim.Optimizer
    chunks: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    rnn, head = nn.GRU(32, 128).to(device), nn.Linear(128, 32).to(device)
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.01, fused=True)
    series = torch.randn(24 * 8 + 1, 32, 32, device=device)
    chunks = [(series[at : at + 8], series[at + 1 : at + 9]) for at in range(0, 24 * 8, 8)]
    return State(rnn, head, optimizer, chunks)


def pitfall(state: State) -> Iterator[Tensor]:
    hidden = None
    for x, y in state.chunks:
        encoded, hidden = state.rnn(x, hidden)  # expect: retained-graph
        loss = nn.functional.mse_loss(state.head(encoded), y)
        loss.backward(retain_graph=True)
        yield loss.detach()
    state.optimizer.step()  # once per series: the chunks' gradients add up


def fix(state: State) -> Iterator[Tensor]:
    hidden = None
    for x, y in state.chunks:
        encoded, hidden = state.rnn(x, hidden)
        hidden = hidden.detach()
        loss = nn.functional.mse_loss(state.head(encoded), y)
        loss.backward()
        yield loss.detach()
    state.optimizer.step()
