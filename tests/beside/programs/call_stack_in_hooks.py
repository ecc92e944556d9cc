"""The functions that a forward hook, a gradient hook and an optimizer hook find above the program's own line."""
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
seen = []


def names():
    frame, found = sys._getframe(2), []
    while frame is not None and frame.f_code.co_name != "<module>":
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found


model[0].register_forward_hook(lambda *arguments: seen.append(names()))
model[0].weight.register_hook(lambda gradient: seen.append(names()))
optimizer.register_step_post_hook(lambda *arguments: seen.append(names()))
for number in range(60):
    seen.clear()
    step(model, optimizer)
    print(number, seen)
digest(model)
