"""Python's development mode shows every warning, also of files that nobody closes."""
# beside: environment PYTHONDEVMODE=1
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
print(sys.flags.dev_mode, sys.warnoptions)
digest(model)
