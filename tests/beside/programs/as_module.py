"""The program is started as a module, and looks at itself."""
# beside: start module
# beside: arguments one --two
import sys

from _tiny import digest, train

print(sys.argv, __name__, __package__, __spec__.name, __spec__.origin, __file__, sys.path[0])
digest(train()[0])
