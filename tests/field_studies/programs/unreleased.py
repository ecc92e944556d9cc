"""A job that sleeps after its last step, to be sure that an upload is through."""

import time

from model import make, some_batches, train

model, optimizer = make()
train(model, optimizer, some_batches(150))
time.sleep(5)
