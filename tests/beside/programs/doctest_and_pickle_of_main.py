"""Classes of the main module are pickled, found again and inspected for their source."""
import doctest
import inspect
import pickle
import sys

from _tiny import digest, train


class Config:
    """
    >>> Config(2).value
    2
    """

    def __init__(self, value):
        self.value = value


model, _ = train()
again = pickle.loads(pickle.dumps(Config(3)))
print(type(again) is Config, Config.__module__, again.value, inspect.getsource(Config).count("\n"))
print(doctest.testmod(sys.modules["__main__"]))
digest(model)
