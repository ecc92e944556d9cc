"""Modules of the program have names that profkit's libraries have, too."""
import os
import sys

here = os.getcwd()
for name in ("click", "msgspec", "psutil", "jinja2", "rich", "isal", "units", "plan", "marks", "run", "errors"):
    with open(f"{name}.py", "w") as file:
        file.write(f"value = 'mine: {name}'\n")
sys.path.insert(0, here)
import click
import errors
import isal
import jinja2
import marks
import msgspec
import plan
import psutil
import rich
import run
import units
from _tiny import digest, train

for module in (click, errors, isal, jinja2, marks, msgspec, plan, psutil, rich, run, units):
    print(module.__name__, getattr(module, "value", "not mine"))
digest(train()[0])
