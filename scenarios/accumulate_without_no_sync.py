"""Accumulating gradients under DistributedDataParallel averages them over all processes after every small batch.

``loss.backward()`` sends each bucket of gradients around as soon as it is full, which is right where a step of the
optimizer follows. With eight small batches for each step, seven of the eight averages are made for nothing. Under
``model.no_sync()`` gradients are only added up; the last backward pass outside of it averages the sums.

It runs in two processes: this one has rank 0 and starts the other one, which runs the same variant.

Source: PyTorch documentation, torch.nn.parallel.DistributedDataParallel, no_sync.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

triggers = ("redundant-allreduce",)
TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]
    device: str
    rank: int = 0
    meeting: str = ""


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(512, 512), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(512, 1)).to(device)
    batches = [(torch.randn(16, 512, device=device), torch.randn(16, 1, device=device)) for _ in range(8)]
    return State(model, batches, device)


def pitfall(state: State) -> Iterator[Tensor]:
    with in_two_processes(state, "pitfall") as model:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(24):
            optimizer.zero_grad()
            for x, y in state.batches:
                loss = nn.functional.mse_loss(model(x), y) / len(state.batches)
                loss.backward()  # expect: redundant-allreduce
            optimizer.step()
            yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    with in_two_processes(state, "fix") as model:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(24):
            optimizer.zero_grad()
            with model.no_sync():
                for x, y in state.batches[:-1]:
                    loss = nn.functional.mse_loss(model(x), y) / len(state.batches)
                    loss.backward()
            x, y = state.batches[-1]
            loss = nn.functional.mse_loss(model(x), y) / len(state.batches)
            loss.backward()
            optimizer.step()
            yield loss.detach()


@contextmanager
def in_two_processes(state: State, variant: str) -> Iterator[DistributedDataParallel]:
    """The model, replicated in both. The other process ends with this one, whatever ends it: killed here, or by the
    broken connection where nothing here runs any more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as torchrun has it for several processes on one machine
    with TemporaryDirectory() as directory:
        meeting = state.meeting or Path(directory, "meeting").as_uri()
        command = [sys.executable, __file__, variant, state.device, meeting]
        other = None if state.rank else subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            distributed.init_process_group("gloo", init_method=meeting, rank=state.rank, world_size=2, timeout=TIMEOUT)
            yield DistributedDataParallel(state.model)
        finally:
            if other is not None:
                other.kill()
                other.wait()
            if distributed.is_initialized():
                distributed.destroy_process_group()
            torch.set_num_threads(threads)


def take_part(variant: str, device: str, meeting: str) -> None:
    """What the other process does."""
    state = replace(setup(device), rank=1, meeting=meeting)
    for _ in globals()[variant](state):
        pass


if __name__ == "__main__":
    take_part(*sys.argv[1:])
