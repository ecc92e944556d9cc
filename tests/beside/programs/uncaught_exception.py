"""An exception with a cause, notes and locals ends the program."""
# beside: status 1
from _tiny import digest, train


def inner(value):
    return 1 / value


def outer():
    try:
        inner(0)
    except ZeroDivisionError as error:
        raise RuntimeError("outer") from error


digest(train()[0])
outer()
