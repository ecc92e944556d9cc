"""DataParallel sends the whole model to every GPU in each step and runs the copies in threads of one process.

One line wraps the model and splits the batch over all GPUs. But each forward pass sends the parameters again, builds a
module per GPU and starts a thread per GPU. The threads take turns at Python's lock, and the outputs return to the first
GPU. DistributedDataParallel has a process per GPU: the parameters stay, and only gradients are sent, while the backward
pass still runs.

It needs two GPUs. On one, or on a CPU, DataParallel calls the model itself, and `fix` is a single process, too. Its
recording is missing, because it was written on a machine without a GPU.

Source: PyTorch documentation, "CUDA semantics", "Use nn.parallel.DistributedDataParallel instead of multiprocessing or
nn.DataParallel".
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

triggers = ("data-parallel",)
needs_gpu = True
gpus = 2
TIMEOUT = timedelta(seconds=120)
STEPS = 24


@dataclass(frozen=True)
class State:
    model: nn.Module
    x: Tensor
    y: Tensor
    device: str
    rank: int = 0
    meeting: str = ""

    @property
    def processes(self) -> int:
        return gpus if self.device.startswith("cuda") else 1


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(40) for layer in (nn.Linear(512, 512), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(512, 1)).to(device)
    return State(model, torch.randn(256, 512, device=device), torch.randn(256, 1, device=device), device)


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-3)
    model = nn.DataParallel(state.model, device_ids=list(range(state.processes)) if state.processes > 1 else None)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(state.x), state.y)  # expect: data-parallel
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    with in_processes(state) as model:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        x, y = (whole.chunk(state.processes)[state.rank] for whole in (state.x, state.y))
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            yield mean_of_all(loss.detach())


def mean_of_all(loss: Tensor) -> Tensor:
    """Each process has the loss of its part of the batch; this is the mean over all."""
    distributed.all_reduce(loss)
    return loss / distributed.get_world_size()


@contextmanager
def in_processes(state: State) -> Iterator[DistributedDataParallel]:
    """The model, in a process per GPU. The others end with this one, whatever ends it: they are killed here, or by the
    broken connection if nothing runs here any more."""
    on_gpus = state.processes > 1
    with TemporaryDirectory() as directory:
        meeting = state.meeting or Path(directory, "meeting").as_uri()
        others = (
            []
            if state.rank
            else [
                subprocess.Popen([sys.executable, __file__, str(rank), meeting], stderr=subprocess.DEVNULL)
                for rank in range(1, state.processes)
            ]
        )
        try:
            distributed.init_process_group(
                "nccl" if on_gpus else "gloo",
                init_method=meeting,
                rank=state.rank,
                world_size=state.processes,
                timeout=TIMEOUT,
            )
            yield DistributedDataParallel(state.model, device_ids=[state.rank] if on_gpus else None)
        finally:
            for other in others:
                other.kill()
                other.wait()
            if distributed.is_initialized():
                distributed.destroy_process_group()


def take_part(rank: str, meeting: str) -> None:
    """What the other processes do."""
    torch.cuda.set_device(int(rank))
    state = replace(setup(f"cuda:{rank}"), rank=int(rank), meeting=meeting)
    for _ in fix(state):
        pass


if __name__ == "__main__":
    take_part(*sys.argv[1:])
