"""A fork leaves by sys.exit, so that it runs the cleanup of its parent."""
import atexit
import os
import sys

from _tiny import begin, digest, step

atexit.register(lambda: print("cleanup", flush=True))
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 6:
        sys.stdout.flush()
        if os.fork() == 0:
            step(model, optimizer)
            digest("child", model)
            sys.exit(4)
        print("child ended with", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
digest(model)
