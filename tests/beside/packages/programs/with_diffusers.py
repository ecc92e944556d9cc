from diffusers import DDPMScheduler, UNet2DModel

import torch

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(4, 8),
    norm_num_groups=2,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images = torch.randn(2, 1, 8, 8)
for _ in range(50):
    noise = torch.randn_like(images)
    timesteps = torch.randint(0, 100, (2,))
    noisy = scheduler.add_noise(images, noise, timesteps)
    loss = torch.nn.functional.mse_loss(model(noisy, timesteps).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
