# kind: knowledge graph
"""Link prediction: each head moved by its relation is set against a pool of candidates."""
import torch
import torch.nn.functional as F
from torch import nn


class Pairs:
    """Every moved head beside every candidate."""

    def __init__(self, moved, candidates):
        self.moved, self.candidates = moved, candidates

    def both(self):
        sides = torch.broadcast_tensors(self.moved[:, None], self.candidates[None])
        return [side.contiguous() for side in sides]  # expect: materialised-broadcast

    def distances(self):
        left, right = self.both()
        return (left - right).abs().amax(-1)


class Links(nn.Module):
    def __init__(self, entities=2000, relations=12, dim=64):
        super().__init__()
        self.entity = nn.Embedding(entities, dim)
        self.relation = nn.Embedding(relations, dim)

    def forward(self, head, relation, pool):
        moved = self.entity(head) + self.relation(relation)
        return Pairs(moved, self.entity(pool)).distances()


torch.manual_seed(0)
model = Links()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    head, relation = torch.randint(2000, (256,)), torch.randint(12, (256,))
    pool = torch.cat([head, torch.randint(2000, (128,))])
    loss = F.cross_entropy(-model(head, relation, pool), torch.arange(256))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
