# kind: graph network
"""Papers are classified from the papers they cite; each step sees another part of the graph."""
import torch
import torch.nn.functional as F
from torch import nn


class Degrees(dict):
    """Normalised edge weights of a part of the graph, worked out when they are asked for."""

    def __init__(self, parts, papers):
        super().__init__()
        self.parts, self.papers = parts, papers

    def __missing__(self, part):
        source, target = self.parts[part]
        degree = torch.bincount(target, minlength=self.papers).clamp(min=1).float().rsqrt()
        weights = degree[source] * degree[target]
        self[part] = weights  # expect: growing-live-tensors
        return weights


class Layer(nn.Module):
    def __init__(self, width, degrees):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.degrees = degrees

    def forward(self, x, part, source, target):
        messages = x[source] * self.degrees[part][:, None]
        return self.linear(torch.zeros_like(x).index_add(0, target, messages))


torch.manual_seed(0)
papers, edges, width = 800, 40_000, 16
sources, targets = torch.randint(papers, (2, 60_000))
parts = [(sources[chosen], targets[chosen]) for chosen in torch.randint(60_000, (16, edges))]
degrees = Degrees(parts, papers)
layers = nn.ModuleList([Layer(width, degrees), Layer(width, degrees)])
head = nn.Linear(width, 5)
optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.05)
features, labels = torch.randn(papers, width), torch.randint(5, (papers,))
for part, (source, target) in enumerate(parts):
    x = features
    for layer in layers:
        x = F.relu(layer(x, part, source, target))
    loss = F.cross_entropy(head(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
