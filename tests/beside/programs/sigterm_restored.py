"""A handler of SIGTERM is set for a while; then what was there is restored, and SIGTERM comes."""
# beside: status -15
import os
import signal

from _tiny import train

previous = signal.signal(signal.SIGTERM, lambda number, frame: print("handled", flush=True))
train(7)
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, previous)
train(60)
os.kill(os.getpid(), signal.SIGTERM)
print("survived", flush=True)
