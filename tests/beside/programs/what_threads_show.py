"""The number of threads and their names as the program finds them."""
import os
import threading

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 4, 6, 20, 59):
        print(number, threading.active_count(), sorted(thread.name for thread in threading.enumerate()))
print(len(os.listdir("/proc/self/task")) - threading.active_count() >= 0, threading.current_thread().name)
digest(model)
