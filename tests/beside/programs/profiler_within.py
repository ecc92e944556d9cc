"""The program profiles steps that profkit wants to record."""
# beside: mask (?m)^.*SyncActivityProfilerHandler.*\n
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
traces = []
schedule = torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=2)
with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda p: traces.append(len(p.events()) > 0)) as profiler:
    for _ in range(60):
        step(model, optimizer)
        profiler.step()
print(traces)
digest(model)
