"""Objects that raise on comparison and hashing live beside the model."""
from _tiny import begin, digest, step


class Hostile:
    asked = []

    def __eq__(self, other):
        Hostile.asked.append("eq")
        raise RuntimeError("nobody may compare this")

    def __hash__(self):
        Hostile.asked.append("hash")
        raise RuntimeError("nobody may hash this")


hostile = Hostile()
kept = [hostile, (hostile,), {"hostile": hostile}]
model, optimizer = begin()
model.extra = hostile
for _ in range(60):
    here = Hostile()
    step(model, optimizer)
print(Hostile.asked)
digest(model)
