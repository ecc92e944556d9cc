# %% [markdown]
# # Denoising, a first try
# Exported from the notebook of the second week.

# %%
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(3)
torch.manual_seed(3)

# %%
clean = torch.sin(torch.linspace(0, 60, 256 * 128)).view(256, 128)
net = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 128))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
history = {"loss": [], "noise": []}

# %%
for epoch in range(40):
    for chunk in clean.split(64):
        noise = np.random.uniform(0.1, 0.5)
        noisy = chunk + noise * torch.randn_like(chunk)
        loss = F.mse_loss(net(noisy), chunk)
        opt.zero_grad(); loss.backward(); opt.step()
        history["loss"].append(loss)  # expect: retained-graph
        history["noise"].append(noise)

# %% [markdown]
# How far did it come?

# %%
curve = np.array([float(l) for l in history["loss"]])
print("first", curve[:4].mean().round(5), "last", curve[-4:].mean().round(5))
print("noise", round(float(np.mean(history["noise"])), 4))
