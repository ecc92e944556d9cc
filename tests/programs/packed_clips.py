# kind: audio with a loader
"""Keyword spotting; clips come from one packed file that each worker opens lazily."""
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIP, CLASSES = 4000, 10


def write_pack(folder, n=360, n_meta=60000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    t = np.arange(CLIP) / 8000
    freq = 200 * 1.25 ** y[:, None] * rng.uniform(0.97, 1.03, (n, 1))
    x = np.sin(2 * np.pi * freq * t) + 0.4 * rng.standard_normal((n, CLIP))
    x.astype(np.float16).tofile(folder / "clips.f16")
    index = [{"id": i, "row": i % n, "label": int(y[i % n]), "speaker": f"s{i % 97}", "ok": i < n} for i in range(n_meta)]
    (folder / "index.json").write_text(json.dumps(index))
    return n


class PackedClips(Dataset):
    def __init__(self, folder, n):
        self.folder, self.n = folder, n
        self.clips = None

    def _open(self):
        entries = json.loads((self.folder / "index.json").read_text())
        self.labels = np.array([e["label"] for e in entries if e["ok"]])
        self.clips = np.memmap(self.folder / "clips.f16", np.float16, "r", shape=(self.n, CLIP))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.clips is None:
            self._open()
        return torch.from_numpy(self.clips[i].astype(np.float32)), int(self.labels[i])


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 32, 64, stride=8), nn.ReLU(), nn.Conv1d(32, 64, 9, stride=2), nn.ReLU(),
            nn.Conv1d(64, 64, 9, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, CLASSES))

    def forward(self, x):
        return self.net(x.unsqueeze(1))


def main(epochs=4):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        data = PackedClips(folder, write_pack(folder))
        loader = DataLoader(  # expect: workers-respawned
            data, batch_size=30, shuffle=True, num_workers=1, prefetch_factor=4
        )
        model = Spotter()
        opt = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
        print("pid", os.getpid(), "clips", len(data), flush=True)
        for epoch in range(epochs):
            total = torch.zeros(())
            for clips, labels in loader:
                loss = nn.functional.cross_entropy(model(clips), labels)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.detach()
            print(f"epoch {epoch:2d} loss {total.item() / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
