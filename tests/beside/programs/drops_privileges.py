"""The program gives up its rights in the middle, as servers do."""
import os

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 6 and os.geteuid() == 0:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
try:
    open("file.txt", "w").close()
except OSError as error:
    print(error.strerror)
digest(model)
