"""time.time and perf_counter run backwards from before torch is imported."""
import itertools
import time

counter = itertools.count(10**9, -10**6)
kept = {name: getattr(time, name) for name in ("time", "perf_counter", "time_ns", "perf_counter_ns", "monotonic_ns")}
time.time = time.perf_counter = lambda: float(next(counter))
time.time_ns = time.perf_counter_ns = time.monotonic_ns = lambda: next(counter)
from _tiny import digest, train

digest(train()[0])
vars(time).update(kept)
