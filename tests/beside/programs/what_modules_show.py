"""Which modules are loaded before the program imports anything."""
import sys

names = sorted({name.partition(".")[0] for name in sys.modules})
print(len(names), names)
from _tiny import digest, train

digest(train()[0])
