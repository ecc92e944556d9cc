# kind: vision, segmentation
"""Blob segmentation with a tiny U-Net and a per-step report object."""
import argparse
import logging
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("seg")


def blobs(batch, size, gen):
    axis = torch.arange(size).float()
    cy, cx = torch.rand(2, batch, 4, 1, 1, generator=gen) * size
    r = 4 + 8 * torch.rand(batch, 4, 1, 1, generator=gen)
    d = (axis.view(1, 1, -1, 1) - cy).square() + (axis.view(1, 1, 1, -1) - cx).square()
    mask = (d < r.square()).any(1, keepdim=True).float()
    image = mask * 0.7 + 0.5 * torch.randn(batch, 1, size, size, generator=gen)
    return image, mask


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU(inplace=True))


class TinyUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2 = block(1, w), block(w, 2 * w)
        self.mid = block(2 * w, 2 * w)
        self.u2, self.u1 = block(4 * w, w), block(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return self.out(self.u1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1)))


class StepReport:
    """What happened in one step; metrics are only computed if somebody asks."""

    def __init__(self, step, image, logits, mask, loss):
        self.step, self.image, self.prob = step, image, logits.detach().sigmoid()
        self.logits, self.mask, self.loss = logits.detach(), mask, loss.detach()
        self.metrics = {"dice": self._dice, "loss": lambda: self.loss.item()}  # expect: reference-cycle

    def _dice(self):
        pred = (self.prob > 0.5).float()
        return (2 * (pred * self.mask).sum() / (pred.sum() + self.mask.sum()).clamp_min(1)).item()

    def __str__(self):
        return f"step {self.step} " + " ".join(f"{k}={fn():.4f}" for k, fn in self.metrics.items())


class Trainer:
    def __init__(self, args):
        self.args = args
        self.gen = torch.Generator().manual_seed(args.seed)
        self.model = TinyUNet()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, fused=True)

    def train_step(self, step):
        image, mask = blobs(self.args.batch, self.args.size, self.gen)
        logits = self.model(image)
        loss = F.binary_cross_entropy_with_logits(logits, mask)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return StepReport(step, image, logits, mask, loss)

    def run(self):
        for step in range(1, self.args.steps + 1):
            report = self.train_step(step)
            if step % 10 == 0:
                rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
                logger.info("%s rss=%dMB", report, rss)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=24)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--size", type=int, default=64)
    ap.add_argument("--seed", type=int, default=0)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    Trainer(args).run()
