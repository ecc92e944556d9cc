import jax
import jax.numpy as jnp

import numpy as np
import torch

torch.manual_seed(0)
target = jax.jit(lambda x: jnp.sin(x).sum(1, keepdims=True))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(50):
    x = torch.randn(16, 8)
    y = torch.from_numpy(np.array(target(x.numpy())))
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
