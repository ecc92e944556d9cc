"""A DataLoader has forked workers, whose seeds and information each item shows."""
import random

import torch
from _tiny import begin, digest, step


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        return torch.tensor([index, info.id, info.seed % 1000, random.randrange(1000), torch.randint(1000, ()).item()])


model, optimizer = begin()
started = []
options = {"num_workers": 2, "batch_size": 4, "shuffle": True}
for epoch in range(3):
    loader = torch.utils.data.DataLoader(Items(), **options)
    for batch in loader:
        print(epoch, batch.tolist(), type(batch).__name__)
        step(model, optimizer)
digest(model)
