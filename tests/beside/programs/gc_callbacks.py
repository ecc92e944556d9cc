"""Callbacks of the collector count full collections, and garbage is kept by DEBUG_SAVEALL for a while."""
import gc

from _tiny import begin, digest, step

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase) if info["generation"] == 2 else None)
model, optimizer = begin()
gc.disable()
collections.clear()
gc.set_debug(gc.DEBUG_SAVEALL)
for number in range(60):
    cycle = []
    cycle.append(cycle)
    del cycle
    step(model, optimizer)
    print(number, len(collections), len(gc.callbacks), len(gc.garbage))
gc.set_debug(0)
gc.garbage.clear()
gc.collect()
print(collections)
digest(model)
