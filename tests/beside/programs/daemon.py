"""A daemon, forked twice in a session of its own, trains on after its parents."""
import os

from _tiny import begin, digest_of, step

model, optimizer = begin()
for _ in range(6):
    step(model, optimizer)
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)
    for _ in range(60):
        step(model, optimizer)
    with open("daemon.txt", "w") as file:
        file.write(digest_of(model))
    os.write(writing, b"done")
    os._exit(0)
os.close(writing)
os.wait()
print(os.read(reading, 100), os.read(reading, 100))
for _ in range(60):
    step(model, optimizer)
print(digest_of(model))
