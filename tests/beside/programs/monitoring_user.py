"""The program counts its calls with sys.monitoring."""
# beside: needs sys.monitoring
import sys

from _tiny import begin, digest, step

monitoring = sys.monitoring
tool = monitoring.COVERAGE_ID
monitoring.use_tool_id(tool, "counting")
calls = 0


def on_start(code, offset):
    global calls
    calls += code.co_name == "step"


monitoring.register_callback(tool, monitoring.events.PY_START, on_start)
monitoring.set_local_events(tool, step.__code__, monitoring.events.PY_START)
model, optimizer = begin()
for _ in range(60):
    step(model, optimizer)
monitoring.free_tool_id(tool)
print(calls, [monitoring.get_tool(number) for number in range(6)])
digest(model)
