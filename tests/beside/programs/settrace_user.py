"""The program traces its own function line by line with sys.settrace."""
import sys

from _tiny import begin, digest, step


def loop(model, optimizer):
    total = 0.0
    for number in range(12):
        total += step(model, optimizer).item()
    return total


counts = {}


def tracer(frame, event, argument):
    if frame.f_code.co_name == "loop":
        counts[event] = counts.get(event, 0) + 1
        return tracer
    return None


model, optimizer = begin()
for _ in range(5):
    before = sys.gettrace()
    sys.settrace(tracer)
    loop(model, optimizer)
    print(sys.gettrace() is tracer)
    sys.settrace(before)
print(counts)
digest(model)
