"""sys.excepthook is replaced within the recorded steps, and an exception ends the program there."""
# beside: status 1
import sys

from _tiny import begin, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 7:
        before = sys.excepthook
        sys.excepthook = lambda *arguments: (print("hook", arguments[0].__name__, flush=True), before(*arguments))
        {}["missing"]
