"""The program records a part of itself with profkit."""
import shutil

import profkit
from _tiny import begin, digest, step

model, optimizer = begin()
for _ in range(5):
    step(model, optimizer)
with profkit.profile("inner") as prof:
    for _ in range(60):
        step(model, optimizer)
print(prof.directory.name, prof.is_over)
shutil.rmtree("inner", ignore_errors=True)
digest(model)
