"""A thread goes on training after the last line of the program."""
import threading

import torch  # noqa: F401  # Python lets nobody import it after the main thread
from _tiny import begin, digest, step

done = threading.Event()


def work():
    model, optimizer = begin()
    done.wait()
    for _ in range(60):
        step(model, optimizer)
    digest(model)


threading.Thread(target=work).start()
print("main ends")
done.set()
