"""A handwritten recurrent cell, called for each time step, runs the embedding, the cell and the head in pieces.

The tutorials' cell joins the input with the state and puts a linear layer behind it. That is ``nn.RNN`` with the
layer's columns split into its two weights. It takes the whole sequence in one call, and embedding, head and criterion
then see all time steps at once.

Source: PyTorch tutorials, "NLP From Scratch: Classifying Names with a Character-Level RNN", which wrote its cell by
hand for years and now calls ``nn.RNN``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unrolled-recurrence",)


class Cell(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.joined = nn.Linear(features + hidden, hidden)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.joined(torch.cat([x, h], dim=1)))


@dataclass(frozen=True)
class State:
    embedding: nn.Embedding
    cell: Cell
    rnn: nn.RNN
    head: nn.Linear
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    cell, rnn = Cell(32, 64).to(device), nn.RNN(32, 64, batch_first=True).to(device)
    with torch.no_grad():
        rnn.get_parameter("weight_ih_l0").copy_(cell.joined.weight[:, :32])
        rnn.get_parameter("weight_hh_l0").copy_(cell.joined.weight[:, 32:])
        rnn.get_parameter("bias_ih_l0").copy_(cell.joined.bias)
        rnn.get_parameter("bias_hh_l0").zero_()
    rnn.get_parameter("bias_hh_l0").requires_grad_(False)
    batches = [torch.randint(50, (16, 101), device=device) for _ in range(30)]
    return State(nn.Embedding(50, 32).to(device), cell, rnn, nn.Linear(64, 50).to(device), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    modules = nn.ModuleList([state.embedding, state.cell, state.head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.01)
    for text in state.batches:
        h = torch.zeros(len(text), 64, device=text.device)
        outputs = []
        for t in range(100):
            h = state.cell(state.embedding(text[:, t]), h)  # expect: unrolled-recurrence
            outputs.append(state.head(h))
        loss = nn.functional.cross_entropy(torch.stack(outputs, dim=2), text[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    modules = nn.ModuleList([state.embedding, state.rnn, state.head])
    optimizer = torch.optim.SGD([each for each in modules.parameters() if each.requires_grad], lr=0.01)
    for text in state.batches:
        states, _ = state.rnn(state.embedding(text[:, :-1]))
        loss = nn.functional.cross_entropy(state.head(states).transpose(1, 2), text[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()
