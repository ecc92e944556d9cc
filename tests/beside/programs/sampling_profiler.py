"""A sampling profiler of the program's own takes the stack at each tick of a timer."""
import signal

from _tiny import begin, digest, step

names = set()
ticks = 0


def tick(number, frame):
    global ticks
    ticks += 1
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back


signal.signal(signal.SIGPROF, tick)
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
model, optimizer = begin()
for _ in range(300):
    step(model, optimizer)
while ticks < 20:
    sum(range(1000))
signal.setitimer(signal.ITIMER_PROF, 0)
print("step" in names)
digest(model)
