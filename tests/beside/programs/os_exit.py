"""The process ends by os._exit in the recorded steps, with text in its buffers."""
# beside: status 7
import os

from _tiny import begin, step

model, optimizer = begin()
print("written and never flushed")
for number in range(60):
    step(model, optimizer)
    if number == 6:
        os.write(1, b"seven\n")
        os._exit(7)
