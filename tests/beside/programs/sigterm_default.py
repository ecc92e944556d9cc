"""SIGTERM ends the program in the recorded steps, as it has no handler."""
# beside: status -15
import os
import signal

from _tiny import begin, step

model, optimizer = begin()
print("before", flush=True)
for number in range(60):
    step(model, optimizer)
    if number == 7:
        os.kill(os.getpid(), signal.SIGTERM)
print("after", flush=True)
