"""An exception is raised and caught in each step, and its traceback printed."""
import traceback

from _tiny import begin, digest, step


def fail(number):
    raise ValueError(number)


model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    try:
        fail(number)
    except ValueError:
        print(traceback.format_exc())
digest(model)
