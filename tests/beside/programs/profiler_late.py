"""The program profiles late steps, and exports them."""
# beside: mask (?m)^.*SyncActivityProfilerHandler.*\n
import json

import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    if number in (3, 50):
        profiler = torch.profiler.profile()
        profiler.start()
    step(model, optimizer)
    if number in (6, 52):
        profiler.stop()
        counts = {event.key: event.count for event in profiler.key_averages()}
        print(number, counts.get("aten::addmm"), counts.get("aten::randn"))
        profiler.export_chrome_trace("trace.json")
        with open("trace.json") as file:
            events = json.load(file)["traceEvents"]
        print(sum(event.get("name") == "aten::addmm" for event in events))
        import os

        os.unlink("trace.json")
digest(model)
