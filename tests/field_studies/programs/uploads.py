"""Results are sent to a store after each epoch, and the training waits for it."""

import urllib.request

from model import make, slow_server, some_batches, train

address = slow_server(0.8)
model, optimizer = make()
for _ in range(5):
    train(model, optimizer, some_batches(60))
    request = urllib.request.Request(address, data=bytes(1 << 16), method="PUT")
    urllib.request.urlopen(request).read()
