import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, n=3000, width=600, seed=0):
        rng = np.random.default_rng(seed)
        self.samples = [
            {"wave": rng.normal(size=width).astype(np.float32), "label": int(i % 4)} for i in range(n)
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        return self.samples[idx]


def collate(samples):
    waves = [s["wave"] for s in samples]
    labels = [s["label"] for s in samples]
    return {
        "wave": torch.tensor(waves),  # expect: slow-tensor-construction
        "label": torch.tensor(labels),
    }


def train(epochs: int = 2):
    torch.manual_seed(0)
    loader = DataLoader(Spectra(), batch_size=50, collate_fn=collate, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Linear(600, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    adam = torch.optim.Adam(net.parameters())
    history = []
    for _ in range(epochs):
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(net(batch["wave"]), batch["label"])
            adam.zero_grad()
            loss.backward()
            adam.step()
            history.append(loss.item())
    return history


if __name__ == "__main__":
    print("{:.5f}".format(train()[-1]))
