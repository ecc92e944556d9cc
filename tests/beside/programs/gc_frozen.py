"""The program freezes its objects, counts them, and sets thresholds of its own."""
import gc

from _tiny import begin, digest, step

model, optimizer = begin()
step(model, optimizer)
gc.freeze()
frozen = gc.get_freeze_count()
gc.set_threshold(500, 5, 5)
for number in range(60):
    step(model, optimizer)
    print(number, gc.get_freeze_count() == frozen, gc.get_threshold(), gc.get_debug())
gc.unfreeze()
digest(model)
