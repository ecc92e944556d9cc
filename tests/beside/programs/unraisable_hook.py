"""A finalizer raises; sys.unraisablehook is first the default, then the program's."""
# beside: mask 0x[0-9a-f]+
import sys

from _tiny import begin, digest, step


class Failing:
    def __del__(self):
        raise ValueError("in a finalizer")


model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 6:
        Failing()
        sys.unraisablehook = lambda arguments: print("hook", arguments.exc_type.__name__, arguments.object is not None)
        Failing()
digest(model)
