import torch


def chamfer(a, b):
    squared = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)
    return squared.min(1).values.mean() + squared.min(0).values.mean()


torch.manual_seed(6)
target = torch.randn(900, 3)
cloud = torch.randn(900, 3, requires_grad=True)
opt = torch.optim.Adam([cloud], lr=1e-2)
for _ in range(30):
    loss = chamfer(cloud, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{loss.item():.5f}")
