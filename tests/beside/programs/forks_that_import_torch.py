"""Forked children import torch and train, the parent does so afterwards."""
import os

for number in range(2):
    if os.fork() == 0:
        from _tiny import digest, train

        digest(number, train(30)[0])
        os._exit(0)
    os.wait()
from _tiny import digest, train

digest(train()[0])
