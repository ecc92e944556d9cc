# kind: autoencoder
"""Online autoencoder on machine spectra; thresholds per band are set at the end of the run."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

BANDS = 512


def spectra(batch, steps, seed):
    """Yield batches of smooth spectra with moving peaks."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(0, 1, BANDS)
    for _ in range(steps):
        centre = torch.rand(batch, 1, generator=g)
        width = 0.02 + 0.05 * torch.rand(batch, 1, generator=g)
        peak = torch.exp(-((axis - centre) / width).square())
        yield peak + 0.02 * torch.randn(batch, BANDS, generator=g)


class SpectrumAE(nn.Module):
    def __init__(self, code=24):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(BANDS, 192), nn.ReLU(), nn.Linear(192, code))
        self.dec = nn.Sequential(nn.Linear(code, 192), nn.ReLU(), nn.Linear(192, BANDS))

    def forward(self, x):
        return self.dec(self.enc(x))


class Monitor:
    def __init__(self, warmup):
        self.warmup = warmup
        self.seen = 0
        self.deviations = []

    def observe(self, x, recon):
        self.seen += 1
        if self.seen > self.warmup:
            self.deviations.append((recon.detach() - x).abs())  # expect: growing-live-tensors

    def thresholds(self, factor=4.0):
        count = sum(len(d) for d in self.deviations)
        mean = torch.stack([d.sum(0) for d in self.deviations]).sum(0) / count
        worst = torch.stack([d.amax(0) for d in self.deviations]).amax(0)
        return torch.minimum(factor * mean, worst)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--warmup", type=int, default=5)
    args = parser.parse_args()

    torch.manual_seed(0)
    model, monitor = SpectrumAE(), Monitor(args.warmup)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    mean_loss, start = torch.zeros(()), time.perf_counter()
    for step, x in enumerate(spectra(args.batch, args.steps, seed=9), 1):
        recon = model(x)
        loss = F.mse_loss(recon, x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        monitor.observe(x, recon)
        mean_loss.lerp_(loss.detach(), 0.1)
        if step % 40 == 0:
            print(f"{step:4d}: loss {mean_loss.item():.5f}, {step / (time.perf_counter() - start):.1f} batches/s")
    limit = monitor.thresholds()
    print(f"thresholds: median {limit.median().item():.4f}, largest {limit.max().item():.4f}")


if __name__ == "__main__":
    main()
