"""sys.excepthook is replaced; the exception that ends the program goes there."""
# beside: status 1
import sys

from _tiny import begin, digest, step


def hook(kind, error, trace):
    depth = 0
    names = []
    while trace:
        depth += 1
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    print("hook", kind.__name__, error, depth, names, file=sys.stderr)


def fail():
    raise ValueError("the end")


sys.excepthook = hook
model, optimizer = begin()
for _ in range(60):
    step(model, optimizer)
digest(model)
fail()
