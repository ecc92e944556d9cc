"""The program profiles its first steps itself."""
# beside: mask (?m)^.*SyncActivityProfilerHandler.*\n
# beside: mask \d+\.\d+m?u?s
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
    for _ in range(10):
        step(model, optimizer)
counts = {event.key: event.count for event in profiler.key_averages()}
print(counts.get("aten::addmm"), counts.get("aten::randn"))
for _ in range(60):
    step(model, optimizer)
digest(model)
