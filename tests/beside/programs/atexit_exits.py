"""A function registered with atexit ends the process with a status of its own."""
# beside: status 9
import atexit
import os

from _tiny import digest, train

atexit.register(lambda: os._exit(9))
digest(train()[0])
