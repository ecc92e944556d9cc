"""diffusers: a small U-Net trained on random images (`train`), or a pipeline that samples from it (`sample`)."""

import sys

import torch
from diffusers import DDIMPipeline, DDIMScheduler, DDPMScheduler, UNet2DModel
from torch import nn

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=32,
    layers_per_block=1,
    block_out_channels=(32, 64, 128),
    down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
)
if sys.argv[1] == "train":
    schedule = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(36):
        images, noise = torch.randn(8, 3, 32, 32), torch.randn(8, 3, 32, 32)
        moments = torch.randint(0, 1000, (8,))
        loss = nn.functional.mse_loss(model(schedule.add_noise(images, noise, moments), moments).sample, noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())
else:
    pipeline = DDIMPipeline(model, DDIMScheduler(num_train_timesteps=1000))
    pipeline.set_progress_bar_config(disable=True)
    for number in range(2):
        images = pipeline(batch_size=4, num_inference_steps=25, output_type="np").images
        print(number, float(images.mean()))
