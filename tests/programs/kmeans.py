# kind: clustering
"""K-means with a distance matrix."""
import torch


def assign(points, centroids):
    k = centroids.shape[0]
    a = points.unsqueeze(1).repeat(1, k, 1)  # expect: materialised-broadcast
    return ((a - centroids) ** 2).sum(-1).argmin(1)


def update(points, labels, k):
    sums = torch.zeros(k, points.shape[1]).index_add_(0, labels, points)
    counts = torch.bincount(labels, minlength=k).clamp_min(1)
    return sums / counts[:, None]


torch.manual_seed(0)
X = torch.randn(5000, 32)
C = X[torch.randperm(len(X))[:40]].clone()
for it in range(25):
    labels = assign(X, C)
    C = update(X, labels, len(C))
print(torch.bincount(labels, minlength=len(C)).max())
