"""builtins.open and os.open count who opens files."""
import builtins
import io
import os

import torch  # noqa: F401
from _tiny import begin, digest, step

names = []
original, of_system = builtins.open, os.open


def opening(file, *arguments, **keywords):
    names.append(str(file))
    return original(file, *arguments, **keywords)


def opening_in_system(path, *arguments, **keywords):
    names.append(str(path))
    return of_system(path, *arguments, **keywords)


builtins.open = io.open = opening
os.open = opening_in_system
model, optimizer = begin()
names.clear()
for number in range(60):
    step(model, optimizer)
    print(number, names)
    names.clear()
builtins.open = io.open = original
os.open = of_system
digest(model)
