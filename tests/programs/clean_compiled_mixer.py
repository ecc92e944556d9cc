# kind: compiled
"""An MLP-mixer whose forward pass is compiled."""
import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tok = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.ch = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.tok(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.ch(self.n2(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 96, 8, 8), nn.Flatten(2))
body = nn.Sequential(*[Mixer(64, 96) for _ in range(3)])
head = nn.Linear(96, 10)


@torch.compile(backend="aot_eager")
def forward(x):
    return head(body(model(x).transpose(1, 2)).mean(1))


opt = torch.optim.AdamW([*model.parameters(), *body.parameters(), *head.parameters()], fused=True)
for i in range(24):
    x, y = torch.rand(16, 3, 64, 64), torch.randint(0, 10, (16,))
    opt.zero_grad()
    loss = nn.functional.cross_entropy(forward(x), y)
    loss.backward()
    opt.step()
print(loss.item())
