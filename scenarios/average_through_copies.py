"""A moving average of weights on deep copies of two state dicts, instead of in place.

`state_dict` gives the weights themselves, so a first version of the average often changed what it should only read.
Copying both dicts cures that, and copies the whole model twice in each step; loading the result copies it again.

Source: ultralytics/ultralytics pull request 25315, which measures an average over state dicts tensor by tensor;
MakazhanAlpamys/Soup issue 160, on dicts that are made whole in each step.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("average-through-copies",)


@dataclass(frozen=True)
class State:
    student: nn.Module
    teacher: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(10) for layer in (nn.Linear(96, 96), nn.Tanh())]
    student = nn.Sequential(*layers, nn.Linear(96, 4)).to(device)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, fused=True)
    return State(student, copy.deepcopy(student), optimizer, [torch.randn(16, 96, device=device) for _ in range(4)] * 6)


def train(state: State, batch: Tensor) -> Tensor:
    with torch.no_grad():
        target = state.teacher(batch).softmax(1)
    loss = nn.functional.cross_entropy(state.student(batch), target)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        loss = train(state, batch)
        mine = copy.deepcopy(state.teacher.state_dict())
        theirs = copy.deepcopy(state.student.state_dict())
        for name in mine:
            mine[name] = 0.9 * mine[name] + 0.1 * theirs[name]  # expect: average-through-copies
        state.teacher.load_state_dict(mine)
        yield loss


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        loss = train(state, batch)
        with torch.no_grad():
            mine, theirs = list(state.teacher.parameters()), list(state.student.parameters())
            torch._foreach_lerp_(mine, theirs, 0.1)
        yield loss
