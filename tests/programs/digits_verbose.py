# kind: vision
"""Small convolutional classifier that reports after each batch."""

import torch
from torch import nn

torch.manual_seed(1)


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 12, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.classify = nn.Linear(12 * 12 * 12, 10)

    def forward(self, img):
        return self.classify(self.features(img).flatten(1))


def fit(net, images, targets, epochs=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    log = []
    for epoch in range(epochs):
        for i, (img, tgt) in enumerate(zip(images, targets, strict=True)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(img), tgt)
            loss.backward()
            optimizer.step()
            log.append((epoch, i, float(loss.detach())))  # expect: host-sync-in-step
    return log


history = fit(Digits(), torch.randn(10, 128, 1, 28, 28), torch.randint(10, (10, 128)))
print("last:", history[-1])
