"""A million small operators in each of a few long steps: particles that are moved one by one."""

import sys

import torch
from torch import Tensor


def simulate(positions: list[Tensor], force: Tensor, moves: int) -> Tensor:
    for _ in range(moves):
        for index, position in enumerate(positions):
            pull = force * position
            positions[index] = position - 0.01 * pull
    return torch.stack(positions).detach()


def main(rounds: int) -> None:
    torch.manual_seed(0)
    force = torch.rand((), requires_grad=True)
    optimizer = torch.optim.SGD([force], lr=0.1)
    for step in range(rounds):
        optimizer.zero_grad()
        with torch.no_grad():
            simulated = simulate(list(torch.rand(100, 3)), force, 3400)
        loss = (simulated * force).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.6f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24)
