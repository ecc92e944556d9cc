# kind: vision with a loader
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, ts):
        self.ts = ts

    def __call__(self, x):
        for t in self.ts:
            x = t(x)
        return x


def random_crop(img, size=64, pad=8):
    img = np.pad(img, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    y, x = random.randrange(2 * pad), random.randrange(2 * pad)
    return img[y : y + size, x : x + size]


def blur(img, k=5):
    out = np.zeros_like(img)
    for dy in range(-(k // 2), k // 2 + 1):
        for dx in range(-(k // 2), k // 2 + 1):
            out += np.roll(img, (dy, dx), (0, 1))
    return out / k**2


def jitter(img):
    return np.clip(img * (0.8 + 0.4 * random.random()) + 0.1 * np.random.randn(*img.shape), 0, 1)


to_tensor = lambda img: torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))).float()


class Pictures(Dataset):
    def __init__(self, n, transform=None):
        rng = np.random.RandomState(0)
        self.data = (rng.rand(n, 64, 64, 3) * 255).astype(np.uint8)
        self.targets = rng.randint(0, 10, n)
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        img = self.data[i] / 255.0
        if self.transform:
            img = self.transform(img)
        return img, int(self.targets[i])


train_set = Pictures(640, Compose([random_crop, blur, jitter, to_tensor]))
train_loader = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)  # expect: input-bound
model = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
model(torch.zeros(1, 3, 64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for epoch in range(1):
    running_loss, correct, seen = torch.zeros(()), torch.zeros((), dtype=torch.long), 0
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.detach()
        correct += (outputs.argmax(1) == targets).sum()
        seen += len(targets)
    print(f"epoch {epoch}: {running_loss.item() / seen:.4f} {correct.item() / seen:.3f}")
