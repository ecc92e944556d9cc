from .settings import *
from .model import Net
import torch


def main():
    set_up(13)
    net = Net()
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for _ in range(STEPS):
        x = torch.randn(BATCH, 32)
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"{float(loss):.6f}")


main()
