import open_clip

import torch

torch.manual_seed(0)
model = open_clip.model.CLIP(
    embed_dim=16,
    vision_cfg={"layers": 1, "width": 32, "head_width": 16, "patch_size": 8, "image_size": 16},
    text_cfg={"layers": 1, "width": 32, "heads": 2, "context_length": 8, "vocab_size": 64},
)
criterion = open_clip.ClipLoss()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
images, texts = torch.randn(4, 3, 16, 16), torch.randint(0, 64, (4, 8))
for _ in range(50):
    features = model(images, texts)
    loss = criterion(*features)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
