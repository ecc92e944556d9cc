"""An alarm ends a program that trains for ever."""
# beside: status -14
import signal

from _tiny import begin, step

model, optimizer = begin()
signal.setitimer(signal.ITIMER_REAL, 2)
while True:
    step(model, optimizer)
