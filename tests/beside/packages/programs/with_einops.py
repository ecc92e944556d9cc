from einops import rearrange, reduce
from einops.layers.torch import Rearrange

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4), torch.nn.Linear(48, 16))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
images = torch.randn(4, 3, 16, 16)
for _ in range(60):
    tokens = model(images)
    loss = reduce(rearrange(tokens, "b n d -> (b n) d").pow(2), "n d -> ", "mean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
