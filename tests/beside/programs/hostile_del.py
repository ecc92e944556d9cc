"""Finalizers print, train and raise, also in cycles that only the collector frees."""
# beside: mask 0x[0-9a-f]+
import gc

from _tiny import begin, digest, step

model, optimizer = begin()
count = 0


class Dying:
    def __init__(self, in_cycle):
        self.cycle = self if in_cycle else None

    def __del__(self):
        global count
        count += 1
        if count % 40 == 0:
            raise ValueError("raised in a finalizer")


gc.disable()
for number in range(60):
    Dying(False)
    Dying(True)
    step(model, optimizer)
    if number % 20 == 19:
        gc.collect()
        print(count)
digest(model)
