"""The address space has little room beyond what is in use."""
import resource

from _tiny import begin, digest, step

model, optimizer = begin()
step(model, optimizer)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 48 * 2**20, resource.RLIM_INFINITY))
for _ in range(60):
    step(model, optimizer)
digest(model)
