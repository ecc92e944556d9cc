"""The working directory does not exist, so that torch cannot be imported."""
# beside: start deleted
# beside: status 2
import os

try:
    print(os.getcwd(), flush=True)
except FileNotFoundError as error:
    print(error, flush=True)
from _tiny import digest, train

digest(train()[0])
