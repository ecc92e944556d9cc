"""The collector runs after every few allocations."""
import gc

from _tiny import begin, digest, step

model, optimizer = begin()
gc.set_threshold(5, 2, 2)
for _ in range(60):
    step(model, optimizer)
digest(model)
