"""The program closes every descriptor that it did not open, in turn at each step, and opens files of its own there."""
import atexit
import os

from _tiny import begin, digest, step

model, optimizer = begin()
mine = {}
for number in range(60):
    step(model, optimizer)
    os.closerange(3 + len(mine), 1024)
    if number < 20:
        descriptor = os.open(f"{number}.txt", os.O_RDWR | os.O_CREAT)
        os.write(descriptor, b"mine")
        mine[descriptor] = number
digest(model)


def last():
    for descriptor, number in mine.items():
        os.write(descriptor, b" and whole")
        assert os.fstat(descriptor).st_ino == os.stat(f"{number}.txt").st_ino


atexit.register(last)
