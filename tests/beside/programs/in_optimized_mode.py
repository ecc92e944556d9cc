"""Python removes assertions and docstrings."""
# beside: environment PYTHONOPTIMIZE=2
import sys

from _tiny import digest, train

assert not train, "never checked"
print(sys.flags.optimize, __doc__)
digest(train()[0])
