"""timm: a ConvNeXt trained on random images, with its optimizer and its averaged weights."""

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import nn

torch.manual_seed(0)
model = timm.create_model("convnext_atto", num_classes=100)
averaged = ModelEmaV3(model, decay=0.99)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
for step in range(30):
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(0, 100, (8,))
    loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    averaged.update(model)
    print(step, loss.item())
