"""The program asks whether torch is installed before it imports it."""
import importlib
import importlib.util

spec = importlib.util.find_spec("torch")
print(spec.name, spec.origin, type(spec.loader).__name__, len(spec.submodule_search_locations), spec.cached)
print(importlib.util.find_spec("torch") is not None)
torch = importlib.import_module("torch")
from _tiny import digest, train

print(torch.__spec__.name, type(torch.__spec__.loader).__name__, type(torch.__loader__).__name__)
digest(train()[0])
