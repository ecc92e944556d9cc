"""Each step runs in a finalizer."""
from _tiny import begin, digest, step

model, optimizer = begin()
losses = []


class Step:
    def __del__(self):
        losses.append(step(model, optimizer).item())


for _ in range(60):
    Step()
digest(model, losses)
