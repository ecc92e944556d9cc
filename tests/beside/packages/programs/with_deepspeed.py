import deepspeed

import os

import torch

for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531", "RANK": "0", "WORLD_SIZE": "1"}.items():
    os.environ.setdefault(name, value)
os.environ.setdefault("LOCAL_RANK", "0")
torch.manual_seed(0)
deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), 1e-3),
    config={"train_batch_size": 8, "steps_per_print": 1000},
)
x = torch.randn(8, 16)
for _ in range(50):
    loss = torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True))
    engine.backward(loss)
    engine.step()
print(loss.item())
