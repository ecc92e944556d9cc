import ray

import torch


@ray.remote
def batch(seed):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))
    return x, x.sum(1, keepdim=True)


ray.init(num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for reference in [batch.remote(seed) for seed in range(40)]:
    x, y = ray.get(reference)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
ray.shutdown()
