"""The program forgets all functions registered with atexit, its own and others'."""
# beside: mask 0x[0-9a-f]+
import atexit

from _tiny import begin, digest, step

model, optimizer = begin()
atexit.register(print, "never")
for number in range(60):
    step(model, optimizer)
    if number == 6:
        atexit._clear()
digest(model)
