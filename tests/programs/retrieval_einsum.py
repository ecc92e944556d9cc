# kind: inference, attention
"""Score documents against queries with cross-attention, no training."""

import torch


@torch.no_grad()
def attend(queries, documents, values):
    affinity = torch.einsum("bhqd,bhkd->bhqk", queries * queries.shape[-1] ** -0.5, documents)  # expect: unfused-attention
    share = affinity.softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", share, values)


def main():
    torch.manual_seed(12)
    documents, values = torch.randn(2, 2, 6, 1024, 32)
    best = torch.zeros(())
    for _ in range(24):
        queries = torch.randn(2, 6, 512, 32)
        best = torch.maximum(best, attend(queries, documents, values).amax())
    print("highest activation", best.item())


main()
