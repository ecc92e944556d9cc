"""The program deletes the directory that it works in, in the recorded steps."""
import os

from _tiny import begin, digest, step

model, optimizer = begin()
os.mkdir("gone")
os.chdir("gone")
for number in range(60):
    step(model, optimizer)
    if number == 6:
        os.rmdir(os.path.abspath("."))
try:
    print(os.getcwd())
except FileNotFoundError as error:
    print(error)
digest(model)
