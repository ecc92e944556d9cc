"""The program looks at sys.meta_path, puts finders of its own there, and replaces the list."""
import sys

print([getattr(one, "__name__", type(one).__name__) for one in sys.meta_path])


class Noting:
    names = []

    def find_spec(self, name, path=None, target=None):
        if name.startswith(("torch", "profkit")):
            Noting.names.append(name)
        return None


sys.meta_path = [Noting(), *sys.meta_path]
from _tiny import digest, train

digest(train()[0])
print(sum(name == "torch" for name in Noting.names), [name for name in Noting.names if name.startswith("profkit")])
