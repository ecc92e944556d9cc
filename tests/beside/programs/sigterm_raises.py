"""The handler of SIGTERM raises an exception, which ends the program with a traceback."""
# beside: status 1
import os
import signal

from _tiny import begin, step


def on_term(number, frame):
    raise RuntimeError(f"signal {number}")


signal.signal(signal.SIGTERM, on_term)
model, optimizer = begin()
try:
    for number in range(60):
        step(model, optimizer)
        if number == 7:
            os.kill(os.getpid(), signal.SIGTERM)
finally:
    print("finally", number, flush=True)
