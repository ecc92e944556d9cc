"""Standard input is closed from the start."""
# beside: start no-stdin
import sys

from _tiny import digest, train

print(sys.stdin)
digest(train()[0])
