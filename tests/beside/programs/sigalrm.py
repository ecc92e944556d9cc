"""Timers of the real clock ring during training, and count."""
import signal

from _tiny import begin, digest, step

rung = []
signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
model, optimizer = begin()
for number in range(60):
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
    step(model, optimizer)
    while len(rung) <= number:
        signal.pause() if signal.getitimer(signal.ITIMER_REAL)[0] else None
print(len(rung), signal.getitimer(signal.ITIMER_REAL))
digest(model)
