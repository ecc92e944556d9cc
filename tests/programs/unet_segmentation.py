# kind: vision, segmentation
import gc

import torch
import torch.nn as nn

cfg = {
    "model": {"channels": [8, 16, 32]},
    "train": {"lr": 1e-3, "epochs": 2, "steps": 8, "batch": 4},
}


class UNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        last = 3
        for c in channels:
            self.downs.append(self.block(last, c))
            last = c
        for c in reversed(channels[:-1]):
            self.ups.append(self.block(last + c, c))
            last = c
        self.head = nn.Conv2d(last, 1, 1)

    @staticmethod
    def block(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    def forward(self, x):
        skips = []
        for i, down in enumerate(self.downs):
            x = down(x)
            if i + 1 < len(self.downs):
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for up in self.ups:
            x = nn.functional.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, skips.pop()], dim=1))
        return self.head(x)


def dice(p, t):
    p = p.sigmoid()
    return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)


def train(cfg):
    torch.manual_seed(0)
    model = UNet(cfg["model"]["channels"])
    opt = torch.optim.Adam(model.parameters(), lr=cfg["train"]["lr"], fused=True)
    data = torch.rand(cfg["train"]["steps"], cfg["train"]["batch"], 3, 32, 32)
    masks = (data.mean(2, keepdim=True) > 0.5).float()
    for epoch in range(cfg["train"]["epochs"]):
        for img, mask in zip(data, masks):
            out = model(img)
            loss = dice(out, mask) + nn.functional.binary_cross_entropy_with_logits(out, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            del out
            gc.collect()  # expect: garbage-collection-in-step
        print(epoch, loss.item())


train(cfg)
