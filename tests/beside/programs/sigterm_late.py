"""SIGTERM ends the program after the recording, as it has no handler."""
# beside: status -15
import os
import signal

from _tiny import digest, train

digest(train(90)[0])
os.kill(os.getpid(), signal.SIGTERM)
print("after", flush=True)
