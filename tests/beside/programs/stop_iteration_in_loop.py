"""Generators end by exceptions, return values and close, and a context manager swallows errors."""
from contextlib import contextmanager, suppress

from _tiny import begin, digest, step

log = []


@contextmanager
def swallowing():
    try:
        yield
    except ValueError as error:
        log.append(str(error))


def training(model, optimizer):
    try:
        while True:
            received = yield step(model, optimizer).item()
            if received == "stop":
                return "stopped"
    finally:
        log.append("closed")


model, optimizer = begin()
steps = training(model, optimizer)
next(steps)
for number in range(58):
    steps.send(None)
    with swallowing(), suppress(KeyError):
        raise ValueError(number)
try:
    steps.send("stop")
except StopIteration as end:
    log.append(end.value)
print(log)
digest(model)
