"""Modules are taken out of sys.modules and put back while training, torch's own among them."""
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    if number in (2, 5, 6, 7, 30):
        names = [name for name in sys.modules if name.startswith(("torch.utils.data", "json", "threading", "__main__"))]
        kept = {name: sys.modules.pop(name) for name in names}
        loss = (model[0].weight * 2).sum()
        loss.backward()
        optimizer.step()
        sys.modules.update(kept)
    step(model, optimizer)
digest(model)
