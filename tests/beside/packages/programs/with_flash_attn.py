from flash_attn import flash_attn_func

import torch

torch.manual_seed(0)
projection = torch.nn.Linear(64, 192, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(projection.parameters(), 0.1)
x = torch.randn(2, 8, 64, device="cuda", dtype=torch.bfloat16)
for _ in range(50):
    query, key, value = projection(x).reshape(2, 8, 3, 1, 64).unbind(2)
    loss = flash_attn_func(query, key, value, causal=True).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
