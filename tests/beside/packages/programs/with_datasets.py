from datasets import Dataset, disable_progress_bars

import torch
from torch.utils.data import DataLoader

disable_progress_bars()
torch.manual_seed(0)
table = Dataset.from_dict({"x": torch.randn(480, 8).tolist(), "y": torch.randint(0, 2, (480,)).tolist()})
table = table.map(lambda row: {"y": 1 - row["y"]}).with_format("torch")
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(table, batch_size=8):
    loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
