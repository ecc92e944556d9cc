"""len, isinstance, sorted and print are replaced by functions that work but count, and restored."""
import builtins

from _tiny import begin, digest, step

counts = {}
kept = {name: getattr(builtins, name) for name in ("len", "isinstance", "sorted", "print", "getattr", "type")}


def counting(name):
    original = kept[name]

    def counted(*arguments, **keywords):
        counts[name] = counts.get(name, 0) + 1
        return original(*arguments, **keywords)

    return counted


model, optimizer = begin()
for number in range(60):
    for name in ("len", "sorted", "print"):
        setattr(builtins, name, counting(name))
    step(model, optimizer)
    for name, value in kept.items():
        setattr(builtins, name, value)
digest(model)
