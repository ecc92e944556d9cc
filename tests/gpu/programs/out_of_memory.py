"""A training loop that keeps its losses with their graphs, until there is no room: ``out_of_memory.py DEVICE``.

On a GPU a limit of the process makes it two GiB. On a CPU, whose memory others need, a single request is absurd.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

LIMIT_BYTES = 2 << 30


def main(device: str) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(4)))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / torch.cuda.get_device_properties(0).total_memory)
    losses = []
    for step in range(200):
        rows = 256 if device == "cuda" else 64 if step < 12 else 1 << 40
        optimizer.zero_grad()
        output = model(torch.rand(rows, 1024, device=device))
        loss = output.square().mean()
        losses.append(output.sum() + loss)
        loss.backward(retain_graph=True)
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
