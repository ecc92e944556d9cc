import timm
import timm.optim

import torch

torch.manual_seed(0)
model = timm.create_model("resnet10t", pretrained=False, num_classes=2)
optimizer = timm.optim.create_optimizer_v2(model, opt="lamb", lr=1e-3)
images, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 1])
for _ in range(50):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
