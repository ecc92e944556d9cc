"""Which descriptors are open, and which number the next one gets."""
import os

from _tiny import begin, digest, step


def opened():
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            found.append((name, os.readlink(f"/proc/self/fd/{name}").partition(":")[0]))
        except OSError:
            pass
    return found


print([(name, os.path.basename(target)) for name, target in opened()])
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 4, 6, 20, 59):
        descriptor = os.dup(0)
        print(number, descriptor, len(opened()))
        os.close(descriptor)
digest(model)
