"""The environment enables faulthandler, and the program aborts in the recorded steps."""
# beside: environment PYTHONFAULTHANDLER=1
# beside: status -6
# beside: mask (?m)^  File .*\n
# beside: mask 0x[0-9a-f]+
# beside: mask (?m)^Thread .*\n
# beside: mask (?m)^\n
# beside: mask (?m)^Extension modules: .*\n
# beside: mask (?m)^Current thread .*\n
import os

from _tiny import begin, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 7:
        os.abort()
