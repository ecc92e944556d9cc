"""A class without __dict__, one with a property of that name, and a module that is no module."""
import sys

from _tiny import begin, digest, step

asked = []


class Slots:
    __slots__ = ("value",)


class Dicts:
    @property
    def __dict__(self):
        asked.append("dict")
        raise RuntimeError("nobody may look")


class NoModule:
    def __getattribute__(self, name):
        if name != "__spec__":
            asked.append(name)
        raise AttributeError(name)


sys.modules["no_module"] = NoModule()
sys.modules["nothing"] = None
kept = [Slots(), Dicts()]
model, optimizer = begin()
for _ in range(60):
    here = Dicts()
    step(model, optimizer)
print(asked)
digest(model)
