"""Standard error is closed from the start."""
# beside: start no-stderr
import sys

from _tiny import digest, train

print(sys.stderr)
digest(train()[0])
