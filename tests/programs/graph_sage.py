# kind: graph network
"""GraphSAGE-like node classification; adjacency as a list of neighbour tensors."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SAGELayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.self_lin = nn.Linear(i, o)
        self.neigh_lin = nn.Linear(i, o)

    def forward(self, x, neighbours):
        aggregated = []
        for node in range(x.shape[0]):
            aggregated.append(x[neighbours[node]].mean(dim=0))  # expect: tensor-element-loop
        return self.self_lin(x) + self.neigh_lin(torch.stack(aggregated))


class SAGE(nn.Module):
    def __init__(self, feats, hidden, classes):
        super().__init__()
        self.conv1 = SAGELayer(feats, hidden)
        self.conv2 = SAGELayer(hidden, classes)

    def forward(self, x, neighbours):
        return self.conv2(F.relu(self.conv1(x, neighbours)), neighbours)


def random_graph(n, degree):
    return [torch.randint(0, n, (degree,)) for _ in range(n)]


def run():
    torch.manual_seed(42)
    N = 300
    neighbours = random_graph(N, 8)
    X, Y = torch.randn(N, 64), torch.randint(0, 7, (N,))
    train_mask = torch.rand(N) < 0.6
    net = SAGE(64, 64, 7)
    optim = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(20):
        net.train()
        optim.zero_grad()
        out = net(X, neighbours)
        loss = F.cross_entropy(out[train_mask], Y[train_mask])
        loss.backward()
        optim.step()
        if epoch % 5 == 0:
            acc = (out.argmax(1) == Y)[~train_mask].float().mean()
            print(f"Epoch {epoch:03d} | loss {loss.item():.4f} | acc {acc:.3f}")


run()
