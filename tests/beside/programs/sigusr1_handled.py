"""The program handles SIGUSR1 from the start, and SIGUSR2 later."""
import os
import signal

from _tiny import begin, digest, step

seen = []
print(signal.signal(signal.SIGUSR1, lambda number, frame: seen.append("one")))
model, optimizer = begin()
for number in range(60):
    if number == 20:
        print(signal.signal(signal.SIGUSR2, lambda number, frame: seen.append("two")))
    step(model, optimizer)
    os.kill(os.getpid(), signal.SIGUSR1)
    if number >= 20:
        os.kill(os.getpid(), signal.SIGUSR2)
print(seen.count("one"), seen.count("two"))
digest(model)
