# kind: contrastive
"""SimCLR on random pictures."""
import argparse
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    return x + 0.1 * torch.randn_like(x)


def nt_xent(z1, z2, tau):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.T / tau
    sim.fill_diagonal_(-1e9)
    n = z1.size(0)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


def main(args):
    torch.manual_seed(args.seed)
    encoder = nn.Sequential(conv_block(3, 32), conv_block(32, 64), conv_block(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    projector = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
    params = list(encoder.parameters()) + list(projector.parameters())
    optimizer = torch.optim.SGD(params, lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.iters)
    images = torch.rand(args.iters, args.batch_size, 3, 32, 32)
    for epoch in range(args.epochs):
        meters = defaultdict(float)
        for batch in images:
            v1, v2 = augment(batch), augment(batch)
            h = encoder(torch.cat([v1, v2]))
            z1, z2 = projector(h).chunk(2)
            loss = nt_xent(z1, z2, args.tau)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            meters["loss"] += loss * batch.size(0)  # expect: retained-graph
            meters["n"] += batch.size(0)
        print(f"epoch {epoch} loss {meters['loss'] / meters['n']:.4f} lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--iters", type=int, default=20)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--tau", type=float, default=0.2)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
