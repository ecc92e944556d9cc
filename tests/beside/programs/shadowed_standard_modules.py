"""Beside the program lie files named like rarely used modules of the standard library."""
import os
import sys

NAMES = ("gzip", "zipfile", "resource", "sqlite3", "statistics", "difflib", "html", "csv", "secrets", "shlex")
for name in NAMES:
    with open(f"{name}.py", "w") as file:
        file.write("raise ImportError('this is not the standard library')\n")
from _tiny import begin, digest, step

model, optimizer = begin()
sys.path.insert(0, os.getcwd())
for _ in range(60):
    step(model, optimizer)
digest(model)
