"""sys.exit with a text writes it to standard error."""
# beside: status 1
import sys

from _tiny import digest, train

digest(train()[0])
sys.exit("the end: ümläut")
