"""Finders, path hooks, warning options, flags and the environment as the program finds them."""
import os
import sys

print([getattr(one, "__name__", type(one).__name__) for one in sys.meta_path])
print(len(sys.path_hooks), sys.warnoptions, sys.flags, sys._xoptions)
print(sorted(name for name in os.environ if "PROFKIT" in name.upper()))
print(hash(tuple(sorted(os.environ.items()))))
from _tiny import digest, train

digest(train()[0])
print([getattr(one, "__name__", type(one).__name__) for one in sys.meta_path])
print(hash(tuple(sorted(os.environ.items()))))
