"""The program closes every descriptor that it did not open, as daemons do."""
import os

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 5:
        os.closerange(3, 1024)
digest(model)
