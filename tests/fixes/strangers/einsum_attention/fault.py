import torch
from torch import nn, einsum


def exists(val):
    return val is not None


class CausalAttention(nn.Module):
    def __init__(self, dim, heads = 4, dim_head = 32):
        super().__init__()
        self.heads = heads
        self.scale = dim_head ** -0.5
        inner = heads * dim_head
        self.to_qkv = nn.Linear(dim, inner * 3, bias = False)
        self.to_out = nn.Linear(inner, dim)

    def forward(self, x, context_mask = None):
        b, n, _, h = *x.shape, self.heads
        q, k, v = self.to_qkv(x).chunk(3, dim = -1)
        q, k, v = map(lambda t: t.reshape(b, n, h, -1).transpose(1, 2), (q, k, v))
        sim = einsum('b h i d, b h j d -> b h i j', q, k) * self.scale  # expect: unfused-attention
        causal_mask = torch.ones((n, n), dtype = torch.bool, device = x.device).triu(1)
        sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim = -1)
        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        out = out.transpose(1, 2).reshape(b, n, -1)
        return self.to_out(out)


class Net(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([nn.LayerNorm(dim), CausalAttention(dim)]) for _ in range(depth)])

    def forward(self, x):
        for norm, attn in self.layers:
            x = attn(norm(x)) + x
        return x


torch.manual_seed(2)
net = Net(dim = 128, depth = 2)
opt = torch.optim.Adam(net.parameters(), lr = 3e-4)
for _ in range(16):
    x = torch.randn(2, 512, 128)
    loss = (net(x)[:, :-1] - x[:, 1:]).pow(2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
print(f'{loss.item():.5f}')
