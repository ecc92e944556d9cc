"""Nothing can be imported any more, from the recorded steps on."""
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
step(model, optimizer)
for number in range(60):
    step(model, optimizer)
    if number == 3:
        kept = sys.meta_path[:], sys.path[:]
        sys.meta_path.clear()
        sys.path.clear()
digest(model)
try:
    import turtledemo  # noqa: F401
except ImportError as error:
    print(error)
