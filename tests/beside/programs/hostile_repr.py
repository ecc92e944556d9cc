"""Objects that raise when they are shown are given to exceptions, hooks and the model."""
# beside: status 1
from _tiny import begin, digest, step


class Hostile:
    def __repr__(self):
        raise RuntimeError("nobody may show this")

    __str__ = __repr__


class Failure(Exception):
    def __str__(self):
        raise RuntimeError("nobody may show this")


model, optimizer = begin()
hostile = model.extra = Hostile()
for _ in range(60):
    step(model, optimizer)
digest(model)
raise Failure(hostile)
