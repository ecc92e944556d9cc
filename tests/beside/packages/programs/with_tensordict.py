from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

import torch

torch.manual_seed(0)
model = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(8, 16), in_keys=["x"], out_keys=["hidden"]),
    TensorDictModule(torch.nn.Linear(16, 1), in_keys=["hidden"], out_keys=["y"]),
)
data = TensorDict({"x": torch.randn(160, 8)}, batch_size=[160])
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(3):
    for batch in data.split(8):
        out = model(batch.clone())
        loss = (out["y"] - batch["x"].sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
