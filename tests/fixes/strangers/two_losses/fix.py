import torch
from torch import nn

torch.manual_seed(31)

class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(512, 512), nn.Tanh())])
        self.a, self.b = nn.Linear(512, 1), nn.Linear(512, 6)
    def forward(self, x):
        z = self.trunk(x)
        return self.a(z), self.b(z)

net = Siamese()
optim = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
kept = []
for step in range(24):
    x = torch.randn(512, 512)
    u, v = net(x)
    loss_a = u.square().mean()
    loss_b = nn.functional.cross_entropy(v, torch.arange(512) % 6)
    optim.zero_grad()
    loss_a.backward(retain_graph=True)
    loss_b.backward()
    optim.step()
    kept.append((loss_a.item(), loss_b.item()))
print("%.5f %.5f" % kept[-1])
