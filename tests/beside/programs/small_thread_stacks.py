"""The program trains on a thread with a stack of half a megabyte."""
import threading

import torch  # noqa: F401
from _tiny import begin, digest, step

threading.stack_size(512 * 1024)


def work():
    model, optimizer = begin()
    for _ in range(2000):
        step(model, optimizer)
    digest(model)


thread = threading.Thread(target=work)
thread.start()
thread.join()
