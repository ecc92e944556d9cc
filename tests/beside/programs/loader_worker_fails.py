"""A worker of a DataLoader raises; the program catches it, goes on, and it raises again."""
# beside: mask (pymp|listener)-\w+
import gc

import torch
from _tiny import begin, digest, step


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 9:
            raise KeyError(index)
        return torch.tensor([float(index)])


model, optimizer = begin()
for _ in range(2):
    try:
        for batch in torch.utils.data.DataLoader(Items(), num_workers=1):
            step(model, optimizer)
    except KeyError as error:
        print(error)
    gc.collect()  # the iterator, which the error held
for _ in range(60):
    step(model, optimizer)
digest(model)
