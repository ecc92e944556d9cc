import bitsandbytes as bnb

import torch

torch.manual_seed(0)
frozen = bnb.nn.Linear4bit(64, 64, bias=False, compute_dtype=torch.float32, quant_type="nf4").to("cpu")
head = torch.nn.Linear(64, 1)
optimizer = torch.optim.AdamW(head.parameters(), 1e-2)
x = torch.randn(8, 64)
for _ in range(50):
    loss = head(frozen(x).relu()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
