# kind: audio with a loader
"""Keyword spotting: a spectrogram is computed from the waveform whenever a sample is read.

Half of that passes in one line, so it leads in some runs and workers do in others.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waveforms(Dataset):
    def __init__(self, n, length=16_000):
        self.n, self.length = n, length
        self.window = np.hanning(512)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        wave = rng.standard_normal(self.length)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::64] * self.window
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2  # expect: input-bound
        return np.log1p(power[:, :64]).astype(np.float32), i % 6


class Experiment:
    def __init__(self):
        torch.manual_seed(2)
        self.loader = DataLoader(Waveforms(480), batch_size=20, shuffle=True)  # expect: input-bound
        self.net = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 6))
        self.net(torch.zeros(1, 243, 64))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def run(self):
        seen = 0
        for step, (spectrogram, word) in enumerate(self.loader):
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.net(spectrogram), word)
            loss.backward()
            self.opt.step()
            seen += len(word)
            if step == 0:
                print("first batch:", tuple(spectrogram.shape))
        return seen


if __name__ == "__main__":
    print("samples seen:", Experiment().run())
