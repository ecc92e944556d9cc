"""The process is killed after the recorded steps."""
# beside: status -9
import os
import signal

from _tiny import digest, train

digest(train(80)[0])
os.kill(os.getpid(), signal.SIGKILL)
