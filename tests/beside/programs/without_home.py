"""HOME is not set."""
# beside: start no-home
import os

from _tiny import digest, train

print(os.environ.get("HOME"), os.path.expanduser("~"))
digest(train()[0])
