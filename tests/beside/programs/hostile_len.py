"""Containers that raise on len, bool, iteration and items live beside the model."""
import torch
from _tiny import begin, digest, step

asked = []


def refuse(name):
    def method(self, *arguments):
        asked.append(f"{type(self).__name__}.{name}")
        raise RuntimeError(f"nobody may call {name}")

    return method


NAMES = ("__len__", "__bool__", "__iter__", "__getitem__", "__contains__", "keys", "values", "items", "get")
methods = {name: refuse(name) for name in NAMES}
Plain, Lists, Dicts = (type(of.__name__.title(), (of,), dict(methods)) for of in (object, list, dict))
kept = [Plain(), Lists([torch.ones(2)]), Dicts(a=torch.ones(2))]
plain, lists, dicts = kept
model, optimizer = begin()
model.extra = dicts
for _ in range(60):
    here = [Lists([torch.ones(2)]), Dicts(a=1)]
    step(model, optimizer)
print(asked)
digest(model)
