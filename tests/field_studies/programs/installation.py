"""The job installs what it needs when it starts; the command only takes the time that this takes."""

import subprocess
import sys

from model import make, some_batches, train

install = [sys.executable, "-c", "import time; time.sleep(10)", "pip", "install", "package"]
subprocess.run(install, check=True)
model, optimizer = make()
train(model, optimizer, some_batches(200))
