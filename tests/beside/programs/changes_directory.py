"""The program changes its directory in the middle and writes relative files."""
import os

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (2, 6, 30):
        os.mkdir(f"part{number}")
        os.chdir(f"part{number}")
        with open("file.txt", "w") as file:
            file.write(os.getcwd())
os.chdir("/")
digest(model)
