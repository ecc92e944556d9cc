"""Objects that lie about their class live beside the model, and one raises for it."""
import torch
from _tiny import begin, digest, step

asked = []


class Liar:
    @property
    def __class__(self):
        asked.append("liar")
        return torch.Tensor


class Module:
    @property
    def __class__(self):
        asked.append("module")
        return torch.nn.Module


class Hostile:
    @property
    def __class__(self):
        asked.append("hostile")
        raise RuntimeError("nobody may ask for the class")


class Meta(type):
    def __instancecheck__(cls, instance):
        asked.append("instancecheck")
        raise RuntimeError("nobody may check")

    def __getattribute__(cls, name):
        if not name.startswith("__"):
            asked.append(f"meta {name}")
        return super().__getattribute__(name)


class OfMeta(metaclass=Meta):
    pass


kept = [Liar(), Module(), Hostile(), OfMeta()]
liar, module, hostile, of_meta = kept
model, optimizer = begin()
for _ in range(60):
    here = [Liar(), Module(), Hostile(), OfMeta()]
    step(model, optimizer)
print(asked)
digest(model)
