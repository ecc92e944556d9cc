# kind: vision with a loader
"""Short-epoch training of a crop classifier with one persistent worker that assembles whole batches."""
import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Crops(Dataset):
    """Fetches a batch at a time: the index is a list of rows."""

    def __init__(self, count, classes, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, classes, size=count)
        tint = rng.integers(40, 200, size=(classes, 3, 1, 1))
        noise = rng.integers(-40, 40, size=(count, 3, 40, 40))
        self.images = np.clip(tint[self.labels] + noise, 0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, rows):
        top, left = np.random.randint(0, 9, size=2)
        crop = self.images[rows, :, top:top + 32, left:left + 32]
        if np.random.random() < 0.5:
            crop = crop[..., ::-1]
        grain = np.random.normal(0.0, 6.0, size=crop.shape)  # costs the worker more than handing the batch over
        x = torch.from_numpy((crop + grain).astype(np.float32)).div_(127.5).sub_(1.0)
        return x, torch.from_numpy(self.labels[rows])


class Unit(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)), inplace=True)


class CropNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.units = nn.Sequential(Unit(3, 24, 1), Unit(24, 48, 2), Unit(48, 96, 2))
        self.head = nn.Linear(96, classes)

    def forward(self, x):
        return self.head(self.units(x).mean(dim=(2, 3)))


def run_epoch(model, loader, optimizer):
    total, steps = torch.zeros(()), 0
    for x, y in loader:
        x = x.contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        steps += 1
    return total.item() / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--count", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the other core belongs to the loader
    data = Crops(args.count, classes=10, seed=0)
    batches = BatchSampler(RandomSampler(data), args.batch, drop_last=True)
    loader = DataLoader(data, sampler=batches, batch_size=None, num_workers=1,
                        persistent_workers=True, prefetch_factor=4)
    model = CropNet(10).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        loss = run_epoch(model, loader, optimizer)
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.3f} in {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main()
