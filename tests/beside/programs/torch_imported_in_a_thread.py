"""A thread imports torch while the main thread waits."""
import importlib
import threading

thread = threading.Thread(target=importlib.import_module, args=("torch",))
thread.start()
thread.join()
from _tiny import digest, train

digest(train()[0])
