"""time.time, perf_counter and monotonic stand still, as with freezegun, and count their calls."""
import time

from _tiny import begin, digest, step

calls = {}


def frozen(name, value):
    def clock():
        calls[name] = calls.get(name, 0) + 1
        return value

    return clock


model, optimizer = begin()
names = ("time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns", "process_time", "sleep")
kept = {name: getattr(time, name) for name in names}
for name in names:
    setattr(time, name, frozen(name, 1_000_000_000))
for number in range(60):
    step(model, optimizer)
    print(number, sorted(calls.items()))
for name, value in kept.items():
    setattr(time, name, value)
digest(model)
