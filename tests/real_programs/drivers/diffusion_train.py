"""denoising-diffusion-pytorch: its U-Net trained on random images, then ten steps of sampling."""

import sys
import types

import torch

for absent, names in (
    ("ema_pytorch", ["EMA"]),
    ("pytorch_fid", []),
    ("pytorch_fid.fid_score", ["calculate_frechet_distance"]),
    ("pytorch_fid.inception", ["InceptionV3"]),
):
    sys.modules.setdefault(absent, types.SimpleNamespace(**dict.fromkeys(names)))  # type: ignore[arg-type] # for its Trainer alone

from denoising_diffusion_pytorch.denoising_diffusion_pytorch import GaussianDiffusion, Unet  # noqa: E402 (what it lacks is set above)

torch.manual_seed(0)
model = Unet(dim=32, dim_mults=(1, 2, 4), flash_attn=False)
diffusion = GaussianDiffusion(model, image_size=32, timesteps=100, sampling_timesteps=10)
optimizer = torch.optim.Adam(diffusion.parameters(), lr=8e-5)
for step in range(12):
    loss = diffusion(torch.rand(8, 3, 32, 32))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
print(diffusion.sample(batch_size=4).mean().item())
