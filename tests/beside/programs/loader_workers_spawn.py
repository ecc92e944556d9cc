"""Spawned, persistent workers with an init function, a collate function and pinned lengths."""
import sys

import torch
from _tiny import begin, digest, step


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        return index, torch.initial_seed() % 1000


def init(number):
    torch.manual_seed(number)


def collate(items):
    return [list(item) for item in items], sys.argv[1:], __name__


if __name__ == "__main__":
    model, optimizer = begin()
    loader = torch.utils.data.DataLoader(
        Items(),
        num_workers=1,
        batch_size=4,
        persistent_workers=True,
        worker_init_fn=init,
        collate_fn=collate,
        multiprocessing_context="spawn",
    )
    for epoch in range(3):
        for batch in loader:
            print(epoch, batch, len(loader))
            step(model, optimizer)
    digest(model)
