"""A batch of four."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(800, 3, 16, 16), torch.randint(0, 10, (800,)))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = nn.Sequential(
    *(nn.Sequential(nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for i in range(6)),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
optimizer = torch.optim.Adam(model.parameters())
for images, labels in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
