"""An IterableDataset, nested loaders, a loader left in the middle and one iterated twice at once."""
import torch
from _tiny import begin, digest, step


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(40):
            yield torch.randn(2) + number


model, optimizer = begin()
outer = torch.utils.data.DataLoader(Stream(), batch_size=2)
inner = torch.utils.data.DataLoader(range(6), batch_size=2, shuffle=True)
for number, batch in enumerate(outer):
    for small in inner:
        step(model, optimizer)
    pairs = zip(inner, inner)
    print(number, batch.tolist(), [(one.tolist(), two.tolist()) for one, two in pairs], next(iter(outer)).tolist())
print(sorted(vars(outer)), type(iter(outer)).__name__)
digest(model)
