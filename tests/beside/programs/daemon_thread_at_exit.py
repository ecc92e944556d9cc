"""A daemon thread computes while the interpreter ends."""
import threading

import torch
from _tiny import digest, train

begun = threading.Event()


def work():
    tensor = torch.ones(8)
    while True:
        tensor = tensor + 1
        begun.set()


threading.Thread(target=work, daemon=True).start()
begun.wait()
digest(train()[0])
