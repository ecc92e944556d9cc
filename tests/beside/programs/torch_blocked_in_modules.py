"""torch is None in sys.modules for a while, so that importing it fails."""
import sys

kept = sys.modules.get("torch")
sys.modules["torch"] = None
try:
    import torch  # noqa: F401
except ImportError as error:
    print(error)
del sys.modules["torch"]
if kept is not None:
    sys.modules["torch"] = kept
from _tiny import digest, train

digest(train()[0])
