"""Each draw of a batch first makes the table of all weights, which stay the same while the batch is drawn.

A replay buffer keeps games with priorities. The method that draws one game collects the priorities of all of them into
an array, and is called for each place of the batch. Each call returns another game, so no call repeats another; but the
array is the same. The priorities change only when a batch has been learned from.

Source: werner-duvaud/muzero-general pull request 117: with 2,000 games and batches of 256 drawing took all of the CPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

triggers = ("repeated-call",)
GAMES, BATCH, WIDTH, STEPS = 1500, 48, 64, 60


@dataclass
class Game:
    priority: float
    state: np.ndarray


@dataclass(frozen=True)
class State:
    games: list[Game]
    weight: Tensor
    draws: np.ndarray


def setup(device: str) -> State:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    games = [Game(float(rng.random()), rng.random(WIDTH, dtype=np.float32)) for _ in range(GAMES)]
    return State(games, torch.randn(WIDTH, device=device), rng.random((STEPS, BATCH)))


def draw_one(games: list[Game], at: float) -> Game:
    sums = np.cumsum([game.priority for game in games])  # expect: repeated-call
    return games[int(np.searchsorted(sums, at * sums[-1]))]


def learn(state: State, games: list[Game]) -> Tensor:
    batch = torch.from_numpy(np.stack([game.state for game in games])).to(state.weight)
    values = batch @ state.weight
    for game, value in zip(games, values.tolist(), strict=True):
        game.priority = 0.9 * game.priority + 0.1 * abs(value) / WIDTH
    return values.mean()


def reset(state: State) -> None:
    rng = np.random.default_rng(1)
    for game in state.games:
        game.priority = float(rng.random())


def pitfall(state: State) -> Iterator[Tensor]:
    reset(state)
    for step in range(STEPS):
        yield learn(state, [draw_one(state.games, at) for at in state.draws[step]])


def fix(state: State) -> Iterator[Tensor]:
    reset(state)
    for step in range(STEPS):
        sums = np.cumsum([game.priority for game in state.games])
        places = np.searchsorted(sums, state.draws[step] * sums[-1])
        yield learn(state, [state.games[place] for place in places])
