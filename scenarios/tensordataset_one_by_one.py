"""A DataLoader over a TensorDataset takes tensors apart, sample by sample, to put them together again.

The data is in memory, so a batch is a single indexing operation. The DataLoader does not know that. It asks the dataset
for each sample by its number and stacks the results, some hundred calls for a batch that the network trains on in less
time. Indexing with all of the batch's numbers gives the same batch.

Source: PyTorch forums and issues on TensorDataset ("DataLoader with TensorDataset is slow"); PyTorch documentation,
torch.utils.data, "Disable automatic batching".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

triggers = ("per-sample-fetch",)

BATCH = 512


@dataclass(frozen=True)
class State:
    device: str
    features: Tensor
    labels: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    features = torch.randn(24 * BATCH, 64)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    return State(device, features, torch.randint(10, (len(features),)), model, optimizer)


def train_step(state: State, x: Tensor, y: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(state.model(x.to(state.device)), y.to(state.device))
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    loader = DataLoader(TensorDataset(state.features, state.labels), batch_size=BATCH)  # expect: per-sample-fetch
    for x, y in loader:
        yield train_step(state, x, y)


def fix(state: State) -> Iterator[Tensor]:
    for batch in torch.arange(len(state.features)).split(BATCH):
        yield train_step(state, state.features[batch], state.labels[batch])
