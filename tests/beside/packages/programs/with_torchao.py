from torchao.quantization import Int8WeightOnlyConfig, quantize_

import torch

torch.manual_seed(0)
backbone = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU())
quantize_(backbone, Int8WeightOnlyConfig())
head = torch.nn.Linear(64, 1)
optimizer = torch.optim.Adam(head.parameters(), 1e-2)
x = torch.randn(8, 32)
for _ in range(50):
    with torch.no_grad():
        features = backbone(x)
    loss = (head(features) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
