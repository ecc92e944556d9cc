"""The program is the __main__ of a package, and imports relatively."""
# beside: start package
# beside: arguments one
import sys

from _tiny import digest, train

from . import __name__ as name

print(sys.argv, __name__, __package__, __spec__.name, __file__, name, sys.path[0])
digest(train()[0])
