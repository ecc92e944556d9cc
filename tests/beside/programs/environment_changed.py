"""The environment is cleared in the middle, and a child sees it empty."""
import os
import subprocess

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 5:
        kept = dict(os.environ)
        os.environ.clear()
        print(subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout)
    if number == 40:
        os.environ["MINE"] = "1"
        print(subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout)
os.environ.update(kept)
digest(model)
