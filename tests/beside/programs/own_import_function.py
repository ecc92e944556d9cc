"""builtins.__import__ is replaced and counts imports of torch."""
import builtins

original = builtins.__import__
names = []


def importing(name, *arguments, **keywords):
    if name.partition(".")[0] in ("torch", "profkit"):
        names.append(name)
    return original(name, *arguments, **keywords)


builtins.__import__ = importing
from _tiny import begin, digest, step

model, optimizer = begin()
names.clear()
for number in range(60):
    step(model, optimizer)
    print(number, names)
    names.clear()
digest(model)
