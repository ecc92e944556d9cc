"""The program lowers the recursion limit to little more than it needs, and raises it later."""
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
step(model, optimizer)
before = sys.getrecursionlimit()
for number in range(60):
    if number == 2:
        sys.setrecursionlimit(120)
    if number == 30:
        sys.setrecursionlimit(before)
    step(model, optimizer)
digest(model)
