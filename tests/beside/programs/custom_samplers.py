"""Samplers and batch samplers of the program's own, with generators that print when they are closed."""
import torch
from _tiny import begin, digest, step


class Sampler(torch.utils.data.Sampler):
    def __init__(self):
        self.asked = 0

    def __len__(self):
        return 60

    def __iter__(self):
        try:
            for index in torch.randperm(60).tolist():
                self.asked += 1
                yield index
        finally:
            print("closed after", self.asked)


model, optimizer = begin()
sampler = Sampler()
loader = torch.utils.data.DataLoader(range(60), sampler=sampler, batch_size=2)
for epoch in range(3):
    for number, batch in enumerate(loader):
        print(batch.tolist(), sampler.asked)
        step(model, optimizer)
        if epoch == 1 and number == 5:
            break
batched = torch.utils.data.DataLoader(range(60), batch_sampler=torch.utils.data.BatchSampler(sampler, 7, True))
print([batch.tolist() for batch in batched])
digest(model)
