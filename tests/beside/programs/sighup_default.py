"""SIGHUP ends the program, as it has no handler."""
# beside: status -1
import os
import signal

from _tiny import begin, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 7:
        os.kill(os.getpid(), signal.SIGHUP)
print("after", flush=True)
