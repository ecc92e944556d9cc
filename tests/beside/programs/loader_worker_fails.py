"""A worker of a DataLoader raises; the program catches it and goes on, then a worker is killed."""
# beside: mask pid[s)(]* \d+|0x[0-9a-f]+
import os
import signal

import torch
from _tiny import begin, digest, step


class Items(torch.utils.data.Dataset):
    def __init__(self, kills):
        self.kills = kills

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 9:
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError(index)
        return torch.tensor([float(index)])


model, optimizer = begin()
for kills in (False, True):
    try:
        for batch in torch.utils.data.DataLoader(Items(kills), num_workers=1):
            step(model, optimizer)
    except KeyError as error:
        print(error)
    except (RuntimeError, OSError, EOFError):
        print("killed")
for _ in range(60):
    step(model, optimizer)
digest(model)
