"""SIGINT raises KeyboardInterrupt in the recorded steps, and ends the program with a traceback."""
# beside: status -2
import os
import signal

from _tiny import begin, step

model, optimizer = begin()
try:
    for number in range(60):
        step(model, optimizer)
        if number == 7:
            os.kill(os.getpid(), signal.SIGINT)
finally:
    print("finally", flush=True)
