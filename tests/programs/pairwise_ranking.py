# kind: ranking
"""Learning to rank with all pairs."""
import torch
from torch import nn


def pairwise_hinge(scores, relevance):
    b, n = scores.shape
    si = scores.unsqueeze(2).repeat(1, 1, n)  # expect: materialised-broadcast
    wanted = (relevance.unsqueeze(2) > relevance.unsqueeze(1)).float()
    return ((1 - (si - scores.unsqueeze(1))).clamp(min=0) * wanted).sum() / wanted.sum().clamp(min=1)


torch.manual_seed(0)
scorer = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adagrad(scorer.parameters(), lr=0.05)
for q in range(30):
    docs, rel = torch.randn(16, 300, 40), torch.randint(0, 5, (16, 300))
    loss = pairwise_hinge(scorer(docs).squeeze(-1), rel)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
