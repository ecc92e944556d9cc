# kind: mixed optimizers
"""Recommender with sparse-ish embeddings and a deep tower: two optimizers."""
import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, n_fields=26, vocab=500, dim=16, depth=24, width=64):
        super().__init__()
        self.embeddings = nn.Embedding(n_fields * vocab, dim)
        self.register_buffer("begins", torch.arange(0, n_fields * vocab, vocab))
        self.first = nn.Linear(n_fields * dim, width)
        self.tower = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, fields):
        x = self.embeddings(fields + self.begins).flatten(1)
        x = self.first(x).relu()
        for lin, norm in zip(self.tower, self.norms):
            x = x + lin(norm(x)).relu()
        return self.out(x).squeeze(1)


torch.manual_seed(0)
model = TwoTower()
emb_params = list(model.embeddings.parameters())
emb_ids = {id(p) for p in emb_params}
dense_params = [p for p in model.parameters() if id(p) not in emb_ids]
opt_emb = torch.optim.SGD(emb_params, lr=0.1)
opt_dense = torch.optim.AdamW(dense_params, lr=1e-3, foreach=False)
for step in range(24):
    fields = torch.randint(0, 500, (128, 26))
    clicks = torch.rand(128).round()
    loss = nn.functional.binary_cross_entropy_with_logits(model(fields), clicks)
    opt_emb.zero_grad()
    opt_dense.zero_grad()
    loss.backward()
    opt_emb.step()
    opt_dense.step()  # expect: single-tensor-optimizer
print(loss.item())
