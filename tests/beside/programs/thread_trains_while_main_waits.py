"""A thread trains while the main thread waits for it."""
import queue
import threading

from _tiny import begin, digest, step

results = queue.Queue()


def work():
    model, optimizer = begin()
    for _ in range(60):
        results.put(step(model, optimizer).item())
    results.put(model)


threading.Thread(target=work).start()
losses = [results.get() for _ in range(60)]
digest(losses, results.get())
