# kind: vision, segmentation
"""Segmentation with several metrics read after every batch."""
import torch
from torch import nn


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.count = 0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


def train_one_epoch(net, batches, opt, meters):
    for img, mask in batches:
        logits = net(img)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, mask)
        opt.zero_grad()
        loss.backward()
        opt.step()
        meters["loss"].update(loss.item(), len(img))  # expect: host-sync-in-step


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = [(torch.rand(8, 3, 48, 48), torch.rand(8, 1, 48, 48).round()) for _ in range(12)]
    meters = {"loss": AverageMeter()}
    for epoch in range(3):
        meters["loss"].reset()
        train_one_epoch(net, batches, opt, meters)
        print(f"Epoch: [{epoch}] loss {meters['loss'].avg:.4f}")


main()
