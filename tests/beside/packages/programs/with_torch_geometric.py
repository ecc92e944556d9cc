from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import torch

torch.manual_seed(0)
data = Data(x=torch.randn(40, 8), edge_index=torch.randint(0, 40, (2, 120)), y=torch.randint(0, 3, (40,)))


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(8, 16), GCNConv(16, 3)

    def forward(self, data):
        x = self.first(data.x, data.edge_index).relu()
        return self.second(x, data.edge_index)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data), data.y)
    loss.backward()
    optimizer.step()
print(loss.item())
