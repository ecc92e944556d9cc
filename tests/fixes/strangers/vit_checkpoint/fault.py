from functools import partial
import torch as t
import torch.nn as nn
import torch.utils.checkpoint as cp

LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = LayerNorm(d), LayerNorm(d)
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        y = self.n1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class TinyViT(nn.Module):
    def __init__(self, d=96, depth=6, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, d, 8, 8)
        self.blocks = nn.ModuleList([Block(d, 4) for _ in range(depth)])
        self.head = nn.Linear(d, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = cp.checkpoint(block, x, use_reentrant=False)  # expect: needless-checkpointing
        return self.head(x.mean(1))


def main():
    t.manual_seed(3)
    net = TinyViT()
    optimiser = t.optim.AdamW(net.parameters(), lr=3e-4)
    images, labels = t.randn(16, 3, 64, 64), t.arange(16) % 10
    for epoch in range(16):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimiser.step()
    print('%.4f' % loss.item())


main()
