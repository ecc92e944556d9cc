"""Signals arrive in a pipe by set_wakeup_fd."""
import os
import signal

from _tiny import begin, digest, step

reading, writing = os.pipe()
os.set_blocking(writing, False)
os.set_blocking(reading, False)
print(signal.set_wakeup_fd(writing))
signal.signal(signal.SIGUSR2, lambda number, frame: None)
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number % 10 == 7:
        os.kill(os.getpid(), signal.SIGUSR2)
print(list(os.read(reading, 1000)), signal.set_wakeup_fd(-1) == writing)
digest(model)
