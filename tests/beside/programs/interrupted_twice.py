"""The first SIGINT is caught and training goes on; the second ends the program."""
# beside: status -2
import os
import signal

from _tiny import begin, step

model, optimizer = begin()
for number in range(60):
    try:
        step(model, optimizer)
        if number in (3, 7, 40):
            os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("caught", number, flush=True)
        if number == 40:
            raise
