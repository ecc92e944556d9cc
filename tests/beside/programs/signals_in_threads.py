"""Signals are blocked, waited for in a thread, and sent to threads."""
import signal
import threading

from _tiny import begin, digest, step

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
seen = []


def wait():
    for _ in range(6):
        seen.append(signal.sigwait({signal.SIGUSR2, signal.SIGTERM}))


thread = threading.Thread(target=wait)
thread.start()
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number % 10 == 5:
        signal.pthread_kill(thread.ident, signal.SIGUSR2 if number % 20 == 5 else signal.SIGTERM)
thread.join()
print(sorted(seen), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), sorted(signal.sigpending()))
digest(model)
