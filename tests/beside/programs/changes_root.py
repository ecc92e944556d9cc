"""The program changes its root directory to an empty one."""
import os

from _tiny import begin, digest, step

model, optimizer = begin()
os.mkdir("root")
for number in range(60):
    step(model, optimizer)
    if number == 6:
        try:
            os.chroot("root")
            os.chdir("/")
        except PermissionError as error:
            print(error.strerror)
digest(model)
