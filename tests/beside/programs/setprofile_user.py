"""The program profiles its own functions with sys.setprofile."""
import sys

from _tiny import begin, digest, step

counts = {}


def profiler(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("step", "loop"):
        counts[frame.f_code.co_name] = counts.get(frame.f_code.co_name, 0) + 1


def loop(model, optimizer):
    for _ in range(12):
        step(model, optimizer)


model, optimizer = begin()
for _ in range(5):
    sys.setprofile(profiler)
    loop(model, optimizer)
    print(sys.getprofile() is profiler)
    sys.setprofile(None)
print(counts)
digest(model)
