"""Recursion goes as deep as Python allows, but for a little; so does a pickled chain."""
import pickle
import sys

from _tiny import begin, digest, step


def deeper(levels, model, optimizer):
    if levels:
        return deeper(levels - 1, model, optimizer)
    return 0


chain = None
for _ in range(150):
    chain = [chain]
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    print(deeper(sys.getrecursionlimit() - 60, model, optimizer), len(pickle.dumps(chain)))
digest(model)
