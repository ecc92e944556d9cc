"""The program traces its calls with VizTracer."""
# beside: needs viztracer
from _tiny import begin, digest, step
from viztracer import VizTracer

model, optimizer = begin()
tracer = VizTracer(verbose=0, output_file="calls.json")
steps = 0
for number in range(60):
    if number in (4, 30):
        tracer.start()
    step(model, optimizer)
    if number in (8, 34):
        tracer.stop()
        tracer.parse()
        steps += sum(event["name"].startswith("step ") for event in tracer.data["traceEvents"] if event["ph"] == "X")
        tracer.clear()
print(steps)
digest(model)
