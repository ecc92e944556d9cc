"""All training happens after the main module's end, in a non-daemon timer."""
import threading

import torch  # noqa: F401  # Python lets nobody import it after the main thread
from _tiny import begin, digest, step


def later():
    model, optimizer = begin()
    for _ in range(60):
        step(model, optimizer)
    digest(model)


threading.Timer(0.01, later).start()
