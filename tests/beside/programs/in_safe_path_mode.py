"""Python does not look for modules beside the program, which adds that place itself."""
# beside: environment PYTHONSAFEPATH=1
import os
import sys

print([os.path.basename(path) for path in sys.path[:2]], getattr(sys.flags, "safe_path", None))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _tiny import digest, train

digest(train()[0])
