"""The program crashes in the recorded steps."""
# beside: status -11
import os
import signal

from _tiny import begin, step

model, optimizer = begin()
print("before", flush=True)
for number in range(60):
    step(model, optimizer)
    if number == 6:
        os.kill(os.getpid(), signal.SIGSEGV)
