"""builtins.open, os.open and os.mkdir refuse everything while the program trains."""
import builtins
import io
import os

from _tiny import begin, digest, step

kept = builtins.open, io.open, os.open, os.mkdir, os.replace, os.rename


def refuse(*arguments, **keywords):
    raise PermissionError("nobody may open anything")


model, optimizer = begin()
builtins.open = io.open = os.open = os.mkdir = os.replace = os.rename = refuse
for _ in range(60):
    step(model, optimizer)
builtins.open, io.open, os.open, os.mkdir, os.replace, os.rename = kept
digest(model)
