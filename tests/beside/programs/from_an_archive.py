"""The program is the __main__ of a package in a zip archive on the path."""
# beside: start zipped
import sys

from _tiny import digest, train

print(sys.argv, __package__, __spec__.name, __file__)
digest(train()[0])
