# kind: vision, detection
"""A toy one-stage detector: anchors, IoU matching, focal loss."""
import torch
from torch import nn
import torch.nn.functional as F


def iou(a, b):
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda x: (x[:, 2:] - x[:, :2]).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
        self.backbone = nn.Sequential(block(3, 16), block(16, 32), block(32, 64))
        self.cls, self.reg = nn.Conv2d(64, 1, 1), nn.Conv2d(64, 4, 1)

    def forward(self, x):
        f = self.backbone(x)
        return self.cls(f).flatten(1), self.reg(f).flatten(2).transpose(1, 2)


ys, xs = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
centers = torch.stack([xs, ys], -1).view(-1, 2) * 8 + 4
anchors = torch.cat([centers - 12, centers + 12], 1)
torch.manual_seed(0)
net = Detector()
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
for step in range(20):
    images = torch.rand(8, 3, 96, 96)
    boxes = [torch.cat([c := torch.rand(3, 2) * 60, c + 24], 1) for _ in range(8)]
    logits, deltas = net(images)
    loss = 0.0
    for i, gt in enumerate(boxes):
        best, which = iou(anchors, gt).max(1)
        positive = (best > 0.3).float()
        p = logits[i].sigmoid()
        ce = F.binary_cross_entropy_with_logits(logits[i], positive, reduction="none")
        focal = ce * (1 - (p * positive + (1 - p) * (1 - positive))) ** 2
        regression = F.smooth_l1_loss(deltas[i], (gt[which] - anchors) / 24, reduction="none").sum(-1)
        loss = loss + focal.sum() / positive.sum().clamp(min=1) + (regression * positive).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(step, loss.item())
