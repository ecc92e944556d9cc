"""sys.exit with a number that does not fit into a status."""
# beside: status 44
import sys

from _tiny import train

train(7)
sys.exit(300)
