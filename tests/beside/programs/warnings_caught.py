"""Warnings are caught and counted around each step."""
import warnings

from _tiny import begin, digest, step

model, optimizer = begin()
total = 0
for _ in range(60):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(model, optimizer)
    total += len(caught)
print(total)
digest(model)
