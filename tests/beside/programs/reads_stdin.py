"""Learning rates are read from standard input, line by line."""
# beside: stdin 0.1\n0.2\n0.3\n
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
for number, line in enumerate(sys.stdin):
    optimizer.param_groups[0]["lr"] = float(line)
    for _ in range(20):
        step(model, optimizer)
print(number, sys.stdin.read(), sys.stdin.isatty())
digest(model)
