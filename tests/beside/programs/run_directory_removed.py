"""The program removes the run directory in the recorded steps, with all that lies there."""
import shutil

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 6:
        shutil.rmtree("../runs/run", ignore_errors=True)
digest(model)
