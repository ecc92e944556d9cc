"""Progress is written to standard error in parts of lines, with carriage returns, and never ended."""
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    sys.stderr.write(f"\rstep {number}")
digest(model)
sys.stdout.write("no line break at the end")
