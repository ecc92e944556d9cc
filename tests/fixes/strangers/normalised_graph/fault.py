import torch
from torch import Tensor, nn


def normalise(adjacency: Tensor) -> Tensor:
    degree = adjacency.sum(1).clamp(min=1).rsqrt()
    return degree[:, None] * adjacency * degree[None, :]


class Propagation(nn.Module):
    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, 32), nn.Linear(32, classes)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        return self.second(a @ self.first(a @ x).relu())


def train(nodes: int = 1500, steps: int = 40) -> None:
    torch.manual_seed(9)
    adjacency = (torch.rand(nodes, nodes) < 0.01).float()
    features, labels = torch.randn(nodes, 16), torch.randint(0, 5, (nodes,))
    net = Propagation(16, 5)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    step = 0
    while (step := step + 1) <= steps:
        a = normalise(adjacency)  # expect: redundant-recomputation
        loss = nn.functional.cross_entropy(net(features, a), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"cross entropy {loss.item():.5f}")


if __name__ == "__main__":
    train()
