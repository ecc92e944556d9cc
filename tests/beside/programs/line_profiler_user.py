"""The program times its lines with line_profiler."""
# beside: needs line_profiler
import _tiny
from line_profiler import LineProfiler

profiler = LineProfiler()
profiler.add_function(_tiny.step)
profiler.enable()
model, _ = _tiny.train()
profiler.disable()
for (_, _, name), lines in profiler.get_stats().timings.items():
    print(name, [(line, hits) for line, hits, _ in lines])
_tiny.digest(model)
