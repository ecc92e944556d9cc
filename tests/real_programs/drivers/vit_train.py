"""vit-pytorch's ViT and SimpleViT, each trained on random images."""

import torch
from torch import nn
from vit_pytorch import SimpleViT, ViT

torch.manual_seed(0)
size = {"image_size": 64, "patch_size": 8, "num_classes": 10, "dim": 192, "depth": 6, "heads": 6, "mlp_dim": 384}
for name, model in (("ViT", ViT(**size, dropout=0.1, emb_dropout=0.1)), ("SimpleViT", SimpleViT(**size))):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for step in range(36):
        images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(name, step, loss.item())
