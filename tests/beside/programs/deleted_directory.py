"""The working directory does not exist."""
# beside: start deleted
import os

from _tiny import digest, train

try:
    print(os.getcwd())
except FileNotFoundError as error:
    print(error)
digest(train()[0])
