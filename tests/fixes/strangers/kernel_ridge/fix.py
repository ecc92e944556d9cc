"""Kernel ridge regression by gradient descent, data from NumPy."""
import contextlib
import numpy as np
import torch

rng = np.random.default_rng(17)


@contextlib.contextmanager
def announced(what):
    print("begin", what)
    yield
    print("end", what)


def load(n=1200, d=40):
    points = rng.standard_normal((n, d))
    target = np.sin(points[:, 0]) + 0.1 * rng.standard_normal(n)
    return torch.from_numpy(points).float(), torch.from_numpy(target).float()  # expect: float64-compute


def main():
    x, y = load()
    weights = torch.zeros(len(x), dtype=x.dtype, requires_grad=True)
    opt = torch.optim.SGD([weights], lr=1e-4)
    with announced("training"):
        for _ in range(30):
            kernel = torch.exp(-torch.cdist(x, x).square() / 80)
            loss = (kernel @ weights - y).square().mean() + 1e-3 * weights @ kernel @ weights
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"{loss.item():.3f}")


main()
