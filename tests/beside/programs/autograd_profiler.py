"""The old autograd profiler is used, with emit of record_function ranges."""
# beside: mask (?m)^.*SyncActivityProfilerHandler.*\n
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    if number % 15 == 5:
        with torch.autograd.profiler.profile() as profiler, torch.profiler.record_function("mine"):
            step(model, optimizer)
        print(number, sum(event.name == "mine" for event in profiler.function_events))
    else:
        with torch.profiler.record_function("mine"):
            step(model, optimizer)
digest(model)
