"""Parts of the training run under cProfile."""
import cProfile
import pstats

from _tiny import begin, digest, step

model, optimizer = begin()
profiler = cProfile.Profile()
for number in range(60):
    if number in (0, 5, 30):
        profiler.enable()
    step(model, optimizer)
    if number in (1, 6, 31):
        profiler.disable()
calls = {key[2]: value[1] for key, value in pstats.Stats(profiler).stats.items() if key[2] in ("step", "digest_of")}
print(calls)
digest(model)
