"""Sketches of a stream of spectra: every reading is whitened, then clustered on the fly."""
import torch


def make_whitener(eps=1e-6):
    count = 0

    def whiten(block):
        nonlocal count
        out = torch.empty_like(block)
        for i in range(block.shape[0]):
            row = block[i]
            out[i] = (row - row.mean()) / (row.std() + eps)  # expect: tensor-element-loop
        count += len(block)
        return out

    def seen():
        return count

    return whiten, seen


def make_clusters(k, width, rate=0.1):
    centres = torch.randn(k, width)

    def assign(block):
        nearest = torch.cdist(block, centres).argmin(1)
        for c in range(k):
            mine = block[nearest == c]
            if len(mine):
                centres[c].lerp_(mine.mean(0), rate)
        return nearest

    return assign, lambda: centres


def stream(blocks, size, width):
    while blocks:
        yield torch.rand(size, width).cumsum(1)
        blocks -= 1


torch.manual_seed(23)
whiten, seen = make_whitener()
assign, centres = make_clusters(8, 200)
sizes = torch.zeros(8, dtype=torch.long)
for block in stream(200, 256, 200):
    sizes += torch.bincount(assign(whiten(block)), minlength=8)
print(seen(), sizes.tolist(), f"{centres().norm():.4f}")
