# kind: custom autograd function
"""Straight-through binarised network (custom autograd.Function) with a cosine schedule and EMA."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class BinaryLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, Sign.apply(self.weight), self.bias)


def build():
    return nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.Hardtanh(), BinaryLinear(512, 512), nn.BatchNorm1d(512),
                         nn.Hardtanh(), BinaryLinear(512, 512), nn.BatchNorm1d(512), nn.Hardtanh(), nn.Linear(512, 10))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = build()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=30)
    X, Y = torch.randn(30, 512, 256), torch.randint(0, 10, (30, 512))
    for i in range(30):
        loss = nn.functional.cross_entropy(model(X[i]), Y[i])
        loss.backward()
        opt.step()
        opt.zero_grad()
        sched.step()
        ema.update_parameters(model)
    print(loss.item())
