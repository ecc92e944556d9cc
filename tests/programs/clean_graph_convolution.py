# kind: graph network
"""Message passing with index_add."""
import torch
from torch import nn


class GCN(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))

    def forward(self, x, src, dst, deg):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            agg = torch.zeros_like(x).index_add_(0, dst, x[src])
            x = agg / deg
            if i + 1 < len(self.layers):
                x = x.relu()
        return x


torch.manual_seed(0)
n, e = 3000, 20000
src, dst = torch.randint(0, n, (2, e))
deg = torch.bincount(dst, minlength=n).clamp(min=1).unsqueeze(1)
feats, labels = torch.randn(n, 100), torch.randint(0, 5, (n,))
train_idx, test_idx = torch.randperm(n).split([2000, 1000])
model = GCN([100, 64, 64, 5])
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
best = 0.0
for epoch in range(1, 41):
    model.train()
    opt.zero_grad()
    logits = model(feats, src, dst, deg)
    loss = nn.functional.cross_entropy(logits[train_idx], labels[train_idx])
    loss.backward()
    opt.step()
    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            acc = (model(feats, src, dst, deg)[test_idx].argmax(-1) == labels[test_idx]).float().mean().item()
        best = max(best, acc)
        print(epoch, round(loss.item(), 3), round(acc, 3))
print("best", best)
