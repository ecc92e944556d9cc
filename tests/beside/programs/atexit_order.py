"""Functions registered with atexit run in reverse order, and one of them trains."""
import atexit

from _tiny import begin, digest, step

model, optimizer = begin()
atexit.register(print, "first registered")


def last():
    for _ in range(5):
        step(model, optimizer)
    digest(model)


atexit.register(last)
for number in range(60):
    step(model, optimizer)
    if number == 6:
        atexit.register(print, "registered while recorded")
print(atexit._ncallbacks() >= 3)
