"""Objects that raise for each attribute, and count who asks, live beside the model."""
from _tiny import begin, digest, step


class Hostile:
    asked = []

    def __getattribute__(self, name):
        Hostile.asked.append(name)
        raise RuntimeError(f"nobody may ask for {name}")


class Late:
    asked = []

    def __getattr__(self, name):
        Late.asked.append(name)
        return self


hostile, late = Hostile(), Late()
kept = [hostile, late, {"hostile": hostile, "late": late}]
model, optimizer = begin()
for _ in range(60):
    here = [Hostile(), Late()]
    step(model, optimizer)
print(Hostile.asked, Late.asked)
digest(model)
