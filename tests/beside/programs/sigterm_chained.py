"""The handler of SIGTERM calls the one before it, if there is one, else the default."""
# beside: status -15
import os
import signal

from _tiny import train

previous = signal.getsignal(signal.SIGTERM)


def on_term(number, frame):
    print("cleanup", flush=True)
    if callable(previous):
        previous(number, frame)
    else:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


signal.signal(signal.SIGTERM, on_term)
train(7)
os.kill(os.getpid(), signal.SIGTERM)
print("survived", flush=True)
