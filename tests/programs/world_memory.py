# kind: RNN
"""World model that carries a memory from batch to batch."""
import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.write = nn.Linear(2 * d, d)
        self.read = nn.Linear(d, d)
        self.state = None

    def forward(self, x):
        if self.state is None:
            self.state = torch.zeros_like(x)
        self.state = torch.tanh(self.write(torch.cat([x, self.state], -1)))  # expect: retained-graph
        return self.read(self.state)


torch.manual_seed(0)
mem = Memory(128)
opt = torch.optim.SGD(mem.parameters(), lr=1e-4)
stream = torch.randn(40, 256, 128)
for x, y in zip(stream[:-1], stream[1:]):
    loss = (mem(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    mem.write.weight.data.sub_(1e-3 * mem.write.weight.grad)
print(loss.item())
