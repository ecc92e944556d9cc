"""The handler of SIGTERM leaves by sys.exit, and finally blocks run."""
# beside: status 12
import os
import signal
import sys

from _tiny import begin, digest, step

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(12))
model, optimizer = begin()
try:
    for number in range(60):
        step(model, optimizer)
        if number == 7:
            os.kill(os.getpid(), signal.SIGTERM)
finally:
    digest(number, model)
