"""A group of exceptions ends the program."""
# beside: needs builtins.ExceptionGroup
# beside: status 1
from _tiny import digest, train

digest(train(8)[0])
error = ValueError("one")
error.add_note("a note")
raise ExceptionGroup("several", [error, TypeError("two")])  # noqa: F821
