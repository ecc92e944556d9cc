"""A handler of SIGINT counts, and the handler before it is compared."""
import os
import signal

from _tiny import begin, digest, step

seen = []
previous = signal.signal(signal.SIGINT, lambda number, frame: seen.append((number, frame.f_code.co_name)))
print(previous is signal.default_int_handler)
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 3, 7, 50):
        os.kill(os.getpid(), signal.SIGINT)
print(seen)
digest(model)
