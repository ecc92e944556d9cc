"""Weights are downloaded when the job starts."""

from urllib.request import urlopen

from model import make, slow_server, some_batches, train

address = slow_server(5.0)
weights = urlopen(address).read()
model, optimizer = make()
train(model, optimizer, some_batches(200))
