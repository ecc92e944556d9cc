# kind: compiled
"""A compiled forward with a statistic that is read in Python."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(128, 256), nn.Linear(256, 256), nn.Linear(256, 10)
        self.seen = 0

    def forward(self, x):
        h = torch.relu(self.a(x))
        norm = h.norm().item()  # expect: graph-break
        if norm > 1e4:
            h = h / norm
        h = torch.relu(self.b(h))
        return self.c(h)


torch.manual_seed(0)
net = Net()
step_fn = torch.compile(net, backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(30):
    x, y = torch.randn(128, 128), torch.randint(0, 10, (128,))
    opt.zero_grad()
    loss = nn.functional.cross_entropy(step_fn(x), y)
    loss.backward()
    opt.step()
print(loss.item())
