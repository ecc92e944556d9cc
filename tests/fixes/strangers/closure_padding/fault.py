"""Parts of speech with closures: make a collate function, make a step, fold the steps."""
from functools import reduce

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader

PAD, WORDS, TAGS = 0, 400, 9


def sentences(n, seed):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(5, 25, (n,), generator=g).tolist()
    rows = [torch.randint(1, WORDS, (length,), generator=g) for length in lengths]
    return [{"words": row, "tags": row % TAGS} for row in rows]


def make_collate(max_len, ignore):
    def padded(rows, value):
        return torch.stack([F.pad(row, (0, max_len - len(row)), value=value) for row in rows])  # expect: padded-batch

    def collate(batch):
        return padded([s["words"] for s in batch], PAD), padded([s["tags"] for s in batch], ignore)

    return collate


def make_step(net, opt, ignore):
    def step(total, batch):
        words, tags = batch
        loss = F.cross_entropy(net(words).flatten(0, 1), tags.flatten(), ignore_index=ignore)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return total + loss.item()

    return step


def build(width=48):
    return nn.Sequential(
        nn.Embedding(WORDS, width, padding_idx=PAD), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, TAGS)
    )


if __name__ == "__main__":
    torch.manual_seed(5)
    data, net = sentences(1200, 5), build()
    loader = DataLoader(data, batch_size=32, shuffle=True, collate_fn=make_collate(max_len=128, ignore=-100))
    step = make_step(net, optim.SGD(net.parameters(), lr=0.1), -100)
    for epoch in range(4):
        print(f"epoch {epoch}: {reduce(step, loader, 0.0) / len(loader):.4f}")
