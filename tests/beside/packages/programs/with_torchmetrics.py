from torchmetrics.classification import MulticlassAccuracy

import torch

torch.manual_seed(0)
metric = MulticlassAccuracy(num_classes=3)
model = torch.nn.Linear(16, 3)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(60, 16, 16), torch.randint(0, 3, (60, 16))
for inputs, targets in zip(x, y):
    logits = model(inputs)
    loss = torch.nn.functional.cross_entropy(logits, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    metric.update(logits, targets)
print(loss.item(), metric.compute().item())
