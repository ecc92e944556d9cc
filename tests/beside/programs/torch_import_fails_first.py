"""The first import of torch fails, as a finder refuses it; the second succeeds."""
import sys


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("no torch today")
        return None


kept = sys.modules.pop("torch", None)
refusing = Refusing()
sys.meta_path.insert(0, refusing)
try:
    import torch
except ImportError as error:
    print(error)
sys.meta_path.remove(refusing)
if kept is not None:
    sys.modules["torch"] = kept
import torch  # noqa: F811
from _tiny import digest, train

digest(train()[0], torch.ones(1))
