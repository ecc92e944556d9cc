"""The process is killed in the recorded steps."""
# beside: status -9
import os
import signal

from _tiny import begin, step

model, optimizer = begin()
print("before", flush=True)
for number in range(60):
    step(model, optimizer)
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
