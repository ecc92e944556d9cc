"""tempfile's directory and prefix are the program's, and what lies there is listed."""
import os
import tempfile

from _tiny import begin, digest, step

model, optimizer = begin()
os.mkdir("temporary")
tempfile.tempdir = os.path.abspath("temporary")
for number in range(60):
    step(model, optimizer)
    if number in (6, 59):
        with tempfile.NamedTemporaryFile(prefix="mine"):
            print(number, len(os.listdir("temporary")), len(os.listdir(os.environ["TMPDIR"])))
digest(model)
