"""DiffWave: its learner on random sounds, with a third of its layers and half of its channels."""

import torch
from diffwave.learner import DiffWaveLearner
from diffwave.model import DiffWave
from diffwave.params import params

FRAMES = 8
torch.manual_seed(0)
params.override({"residual_layers": 10, "residual_channels": 32, "crop_mel_frames": FRAMES, "batch_size": 4})
samples = [
    {"audio": torch.randn(FRAMES * params.hop_samples), "spectrogram": torch.rand(80, FRAMES)} for _ in range(160)
]
loader = torch.utils.data.DataLoader(samples, batch_size=params.batch_size, shuffle=True, drop_last=True)
model = DiffWave(params)
optimizer = torch.optim.Adam(model.parameters(), lr=params.learning_rate)
DiffWaveLearner("logs", model, loader, optimizer, params).train(max_steps=40)
