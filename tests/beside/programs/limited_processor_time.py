"""SIGXCPU comes when the processor time is used up, and the program handles it."""
import resource
import signal

from _tiny import begin, digest, step

seen = []
signal.signal(signal.SIGXCPU, lambda number, frame: seen.append(number))
model, optimizer = begin()
used = resource.getrusage(resource.RUSAGE_SELF)
resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1, resource.RLIM_INFINITY))
for _ in range(60):
    step(model, optimizer)
digest(model)
while not seen:
    sum(range(1000))
resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(set(seen))
