"""A DataLoader without workers prepares each batch while the model waits for it.

``num_workers`` is 0 by default, and with a small dataset nobody notices. But if reading a sample means decompressing
and augmenting it, the training process spends most of a step in ``__getitem__`` while the device idles. Workers prepare
the next batches during the training on this one.

Having no workers is not always wrong: with cheap samples it is faster.

Source: PyTorch tutorials, Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
"""

import multiprocessing
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

triggers = ("input-bound",)

SIDE = 96
# A scenario is loaded by its path, so a worker in a new process could not import the dataset's class.
START = "fork" if "fork" in multiprocessing.get_all_start_methods() else None


class CompressedImages(Dataset[tuple[Tensor, int]]):
    """Images kept compressed; reading one decompresses, flips, brightens, smooths and standardises it."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        coarse = rng.integers(0, 255, (count, SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        self.blobs = [zlib.compress(np.kron(image, np.ones((8, 8, 1), np.uint8)).tobytes()) for image in coarse]

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng(index)
        image = np.frombuffer(zlib.decompress(self.blobs[index]), np.uint8).reshape(SIDE, SIDE, 3)
        image = image[:, ::-1] if rng.random() < 0.5 else image
        image = (image / 255.0).astype(np.float32) ** rng.uniform(0.8, 1.2)
        for axis in (0, 1):
            image = sum(np.roll(image, shift, axis) for shift in range(-3, 4)) / 7
        image = (image - image.mean((0, 1))) / (image.std((0, 1)) + 1e-6)
        return torch.from_numpy(image.astype(np.float32).transpose(2, 0, 1).copy()), index % 10


@dataclass(frozen=True)
class State:
    device: str
    dataset: CompressedImages
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    return State(device, CompressedImages(32 * 24), model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True))


def pitfall(state: State) -> Iterator[Tensor]:
    loader = DataLoader(state.dataset, batch_size=32)  # expect: input-bound
    for x, y in loader:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x.to(state.device)), y.to(state.device))
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    loader = DataLoader(state.dataset, batch_size=32, num_workers=2, multiprocessing_context=START)
    for x, y in loader:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x.to(state.device)), y.to(state.device))
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
