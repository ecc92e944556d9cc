"""SIGTERM is ignored."""
import os
import signal

from _tiny import begin, digest, step

print(signal.signal(signal.SIGTERM, signal.SIG_IGN))
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (2, 7, 50):
        os.kill(os.getpid(), signal.SIGTERM)
print(signal.getsignal(signal.SIGTERM))
digest(model)
