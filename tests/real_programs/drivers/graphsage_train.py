"""graphsage-simple: what its `run_cora` does, which is Python 2, on a random graph of the same size."""

import random
from collections import defaultdict

import numpy as np
import torch
from graphsage.aggregators import MeanAggregator
from graphsage.encoders import Encoder
from torch import nn

torch.manual_seed(0)
np.random.seed(1)
random.seed(1)
nodes, width, classes = 2708, 1433, 7


class Supervised(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.weight = nn.Parameter(torch.empty(classes, encoder.embed_dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, batch: list[int]) -> torch.Tensor:
        return self.weight.mm(self.encoder(batch)).t()


neighbours = defaultdict(set)
for source, target in zip(np.arange(nodes).repeat(4).tolist(), np.random.permutation(4 * nodes).tolist(), strict=True):
    neighbours[source].add(target % nodes)
    neighbours[target % nodes].add(source)
labels = torch.randint(classes, (nodes,))
features = nn.Embedding(nodes, width)
features.weight = nn.Parameter((torch.rand(nodes, width) < 0.01).float(), requires_grad=False)
first = Encoder(features, width, 128, neighbours, MeanAggregator(features), gcn=True, cuda=False)
aggregator = MeanAggregator(lambda batch: first(batch).t(), cuda=False)
second = Encoder(
    lambda batch: first(batch).t(), 128, 128, neighbours, aggregator, base_model=first, gcn=True, cuda=False
)
first.num_samples = second.num_samples = 5
model = Supervised(second)
train = np.random.permutation(nodes)[1500:].tolist()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.7)
loss_of = nn.CrossEntropyLoss()
for batch in range(60):
    chosen = train[:256]
    random.shuffle(train)
    optimizer.zero_grad()
    loss = loss_of(model(chosen), labels[chosen])
    loss.backward()
    optimizer.step()
    print(batch, f"{loss.item():.3f}")
