"""A hook raises in the backward pass of a recorded step, and the traceback names it."""
# beside: status 1
from _tiny import begin, step


def fail(gradient):
    raise ValueError("in the backward pass")


model, optimizer = begin()
for number in range(60):
    if number == 7:
        model[0].weight.register_hook(fail)
    step(model, optimizer)
