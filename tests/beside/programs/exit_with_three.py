"""sys.exit(3), which is also what profkit says of failed programs."""
# beside: status 3
import sys

from _tiny import digest, train

digest(train()[0])
sys.exit(3)
