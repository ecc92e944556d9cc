from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss

import torch
from tensordict import TensorDict

torch.manual_seed(0)
actor = QValueActor(
    MLP(in_features=4, out_features=2, num_cells=[16]), in_keys=["observation"], action_space="categorical"
)
criterion = DQNLoss(actor, action_space="categorical")
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=8)
buffer.extend(
    TensorDict(
        {
            "observation": torch.randn(100, 4),
            "action": torch.randint(0, 2, (100,)),
            "next": {
                "observation": torch.randn(100, 4),
                "reward": torch.randn(100, 1),
                "done": torch.zeros(100, 1, dtype=torch.bool),
                "terminated": torch.zeros(100, 1, dtype=torch.bool),
            },
        },
        batch_size=[100],
    )
)
optimizer = torch.optim.Adam(criterion.parameters(), 1e-3)
for _ in range(50):
    loss = criterion(buffer.sample())["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
